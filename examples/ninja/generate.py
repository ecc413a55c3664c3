import os
# 5,000 sources in 100 directories, each of which includes 60 of 500 headers
SOURCES, HEADERS, INCLUDED = 5000, 500, 60
headers = ["include/component%02d/detail/header%03d.h" % (n % 20, n) for n in range(HEADERS)]
for header in headers:
    os.makedirs(os.path.dirname(header), exist_ok=True)
    open(header, "w").close()
with open("build.ninja", "w") as out:
    out.write("cflags = -O2 -g -Wall -Iinclude\nrule cc\n  command = : $cflags $in > $out\n  description = CC $out\n  deps = gcc\n  depfile = $out.d\n")
    out.write("rule link\n  command = : > $out\n")
    libraries = []
    for directory in range(100):
        objects = []
        for number in range(SOURCES // 100):
            source = "source/module%02d/file%03d.cc" % (directory, number)
            target = "out/" + source + ".o"
            os.makedirs(os.path.dirname(source), exist_ok=True)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            open(source, "w").close()
            seed = directory * 50 + number
            used = [headers[(seed * 7 + k * 13) % HEADERS] for k in range(INCLUDED)]
            with open(target + ".d", "w") as deps:
                deps.write(target + ": " + source + " " + " ".join(used) + "\n")
            out.write("build %s: cc %s\n" % (target, source))
            if number % 5 == 0:
                out.write("  cflags = -O0 -g -Wall -Iinclude -DMODULE=%d\n" % directory)
            objects.append(target)
        library = "out/lib%02d.a" % directory
        out.write("build %s: link %s\n" % (library, " ".join(objects)))
        libraries.append(library)
    out.write("build out/program: link %s\n" % " ".join(libraries))
