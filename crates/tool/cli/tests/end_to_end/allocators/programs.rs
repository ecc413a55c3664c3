//! Programs that people use, with Heapledger's allocator: what they print and the files that they
//! write are the same to the byte.

use std::fs;
use std::path::{Path, PathBuf};

use super::{same, tree, with};
use crate::harness::{Job, Outcome, Scratch, installed, skipped};

/// A shell script that works in an empty directory, and the programs that it needs.
struct Script<'s> {
    needs: &'s [&'s str],
    text: &'s str,
    /// An environment variable, or none.
    variable: Option<(&'s str, &'s str)>,
}

impl<'s> Script<'s> {
    fn new(needs: &'s [&'s str], text: &'s str) -> Script<'s> {
        Script { needs, text, variable: None }
    }

    /// Runs the script by itself and with the allocator, each time in the same directory, which is
    /// empty then. What is printed, the status and all files must be the same. Returns `None`
    /// after saying so if a program is not installed.
    #[track_caller]
    fn compare(&self) -> Option<Outcome> {
        self.compare_by(|job| with(job, "heapledger"))
    }

    /// The same under the recorder, and the recording must be whole.
    #[track_caller]
    fn compare_recorded(&self) -> Option<Outcome> {
        let recordings = Scratch::new();
        self.compare_by(|job| {
            let (outcome, recording) = job.clone().option("--allocator=heapledger").recorded(&recordings);
            recording.assert_whole().assert_adds_up();
            outcome
        })
    }

    #[track_caller]
    fn compare_by(&self, run: impl FnOnce(&Job) -> Outcome) -> Option<Outcome> {
        for program in self.needs {
            installed(program)?;
        }
        let scratch = Scratch::new();
        let directory = scratch.file("work");
        fs::create_dir(&directory).unwrap();
        let mut job = Job::new(["/bin/bash", "-c", self.text]).directory(&directory);
        // No settings of the user's, and no cache of an earlier run.
        job = job.variable("HOME", &directory).variable("TZ", "UTC").variable("LC_ALL", "C");
        if let Some((name, value)) = self.variable {
            job = job.variable(name, value);
        }
        let bare = job.bare();
        assert!(bare.status.success() && !bare.stdout.is_empty(), "{} by itself: {bare:?}", self.needs[0]);
        let files = tree(&directory);
        fs::remove_dir_all(&directory).unwrap();
        fs::create_dir(&directory).unwrap();
        let outcome = run(&job);
        assert!(bare == outcome, "{}: by itself: {bare:?}\nwith the allocator: {outcome:?}", self.needs[0]);
        let names = |files: &[(String, Vec<u8>)]| files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let now = tree(&directory);
        assert_eq!(names(&now), names(&files), "{}", self.needs[0]);
        for ((name, now), (_, before)) in now.iter().zip(&files) {
            assert!(now == before, "{}: {name} differs", self.needs[0]);
        }
        Some(outcome)
    }
}

const COMPILER: &str = "
for i in $(seq 300); do echo \"static int f$i(int x) { int s = 0; for (int j = 0; j < x; j++) s += j * $i ^ s; return s; }\"; done > a.c
echo 'int printf(const char *, ...); int main(void) { int s = 0;' >> a.c
for i in $(seq 300); do echo \"s += f$i(s & 15);\" >> a.c; done
echo 'printf(\"%d\\n\", s); return 0; }' >> a.c
cc -O2 -g -c a.c && cc a.o -o a && ./a && sha256sum a.o a";

const SQLITE: &str = "
sqlite3 db 'create table t(a integer primary key, b text, c real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert into t select i, hex(i * 7919) || i, i * 1.5 from n;
create index tb on t(b); delete from t where a % 7 = 0; vacuum;
select count(*), sum(c), max(b) from t where b like \"3%\"; pragma integrity_check;'
sha256sum db";

const GIT: &str = "
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z'
git init -q -b main .
for i in 1 2 3 4 5 6; do seq $i 3000 > file; git add file; git -c user.name=n -c user.email=e commit -q -m \"change $i\"; done
git log --stat -p | sha256sum; git gc -q; git fsck; git blame file | tail -1
# The index has the times of files.
rm -rf .git/index .git/logs";

const PERL: &str = "perl -e '
my %h; $h{$_} = join(q(,), map { $_ * 3 } 1 .. ($_ % 50)) for 1 .. 20000;
print length(join(q(;), map { $h{$_} } sort keys %h)), qq(\\n);
for (1 .. 3) { my $p = fork; exit(3) unless $p; waitpid($p, 0); print $? >> 8, qq(\\n) }'";

const LUA: &str = "lua5.4 -e '
local t = {} for i = 1, 100000 do t[#t + 1] = tostring(i):rep(i % 20) end
table.sort(t) print(#table.concat(t)) collectgarbage() print(t[777])'";

const BASH: &str = "
for i in {1..3000}; do x[i]=$i$i; done; echo ${#x[@]} $(echo sub | tr a-z A-Z)
ls /usr/bin | sort | sha256sum; find /usr/include -name '*.h' | sort | head -500 | xargs cat | sort | uniq -c | sort -rn | head -5";

const PYTHON: &str = "python3 -c '
import json, sqlite3, threading, zlib, subprocess, sys
d = [{str(i): [i, \"x\" * (i % 99)]} for i in range(5000)]
t = [threading.Thread(target=lambda: json.loads(json.dumps(d))) for _ in range(4)]
[x.start() for x in t]; [x.join() for x in t]
print(len(json.dumps(d)), zlib.crc32(zlib.compress(json.dumps(d).encode())))
c = sqlite3.connect(\":memory:\"); c.execute(\"create table t(a)\")
c.executemany(\"insert into t values (?)\", ((i,) for i in range(5000)))
print(c.execute(\"select sum(a) from t\").fetchone())
print(subprocess.run([sys.executable, \"-c\", \"print(7)\"], capture_output=True).stdout)'";

const NODE: &str = "node -e '
const o = {}; for (let i = 0; i < 100000; i++) o[`k${i}`] = { i, s: `x`.repeat(i % 50) };
console.log(JSON.stringify(o).length);
const z = require(`zlib`); console.log(z.gunzipSync(z.gzipSync(Buffer.alloc(5e6, 7))).length);
require(`crypto`).pbkdf2(`a`, `b`, 1000, 32, `sha256`, (e, k) => console.log(k.toString(`hex`)));'";

const REDIS: &str = "
redis-server --port 0 --unixsocket ./socket --save '' --appendonly no > /dev/null & server=$!
ask() { redis-cli -s ./socket \"$@\"; }
until ask ping 2> /dev/null | grep -q PONG; do sleep 0.02; done
for i in $(seq 3000); do echo \"set key$i value$i$i$i\"; echo \"lpush list x$i\"; echo \"zadd sorted $i m$i\"; done | ask > answers
sort answers | uniq -c | sort -n | tail -2; rm answers
ask dbsize; ask get key77; ask eval 'local t = {} for i = 1, 10000 do t[i] = i end return #t' 0
ask flushall; ask memory purge; ask shutdown nosave; wait $server; echo ended $?";

#[test]
fn a_compiler() {
    Script::new(&["cc"], COMPILER).compare();
}

#[test]
fn a_database_in_a_file() {
    Script::new(&["sqlite3"], SQLITE).compare();
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn version_control_and_interpreters() {
    let scripts = [
        Script::new(&["git"], GIT),
        Script::new(&["perl"], PERL),
        Script::new(&["lua5.4"], LUA),
        Script::new(&["bash"], BASH),
        Script { variable: Some(("PYTHONMALLOC", "malloc")), ..Script::new(&["python3"], PYTHON) },
        Script::new(&["node"], NODE),
    ];
    for script in scripts {
        script.compare();
    }
}

/// Debian's links a shared jemalloc, which comes behind.
#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn a_server_that_links_another_allocator() {
    let Some(outcome) = Script::new(&["redis-server", "redis-cli"], REDIS).compare() else { return };
    assert!(outcome.text().contains("9001") || outcome.text().contains("3002"), "{outcome:?}");
    assert!(outcome.text().ends_with("ended 0\n"), "{outcome:?}");
}

#[test]
#[ignore = "it takes long; `.ci/run` runs it"]
fn programs_that_are_recorded_with_it() {
    let scripts = [
        Script::new(&["cc"], COMPILER),
        Script::new(&["sqlite3"], SQLITE),
        Script::new(&["git"], GIT),
        Script::new(&["lua5.4"], LUA),
        Script { variable: Some(("PYTHONMALLOC", "malloc")), ..Script::new(&["python3"], PYTHON) },
        Script::new(&["redis-server", "redis-cli"], REDIS),
    ];
    for script in scripts {
        script.compare_recorded();
    }
}

// Cargo keeps times of use in its global cache.
const RUST: &str = "
export CARGO_NET_OFFLINE=true
mkdir -p src; printf '[package]\\nname = \"hello\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[workspace]\\n' > Cargo.toml
cat > src/main.rs <<X
use std::collections::HashMap;
fn main() {
    let mut map: HashMap<u64, Vec<String>> = HashMap::new();
    for i in 0..100_000 { map.entry(i % 1000).or_default().push(i.to_string()); }
    println!(\"{}\", map.values().map(Vec::len).sum::<usize>());
}
X
cargo run -q && cargo run -q --release && sha256sum target/release/hello | cut -c 1-64; rm -rf target Cargo.lock .cargo/.global-cache";

const NGINX: &str = "
mkdir logs html; seq 50000 > html/file
cat > conf <<X
worker_processes 2; daemon off; pid $PWD/pid; error_log $PWD/errors; events {}
http { access_log off; gzip on; gzip_types *; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server { listen unix:$PWD/socket; root $PWD/html; } }
X
nginx -p $PWD -c $PWD/conf 2> /dev/null & server=$!
until [ -S socket ]; do sleep 0.02; done
get() { curl -s --unix-socket socket \"$@\"; }
for i in $(seq 30); do get -H 'Accept-Encoding: gzip' http://x/file | gunzip | sha256sum; done | uniq -c
get http://x/missing | head -3
kill -HUP $server; get http://x/file | wc -c
kill -QUIT $server; wait $server; echo ended $?; rm -rf errors pid socket";

const FFMPEG: &str = "
exact='-bitexact -fflags +bitexact -flags +bitexact'
ffmpeg -v error -f lavfi -i testsrc=duration=2:size=320x240:rate=25 -f lavfi -i sine=duration=2 \
    -c:v mpeg4 -c:a aac -threads 2 $exact out.mp4
ffmpeg -v error -i out.mp4 -f md5 -; ffprobe -v error -show_streams out.mp4 | grep -e codec_name -e nb_frames";

const POSTGRES: &str = "
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1); data=$PWD/data
# The path of a socket is short.
sockets=$(mktemp -d /tmp/heapledger-test.XXXXXX)
run() { if [ $(id -u) = 0 ]; then setpriv --reuid=nobody --regid=nogroup --clear-groups \"$@\"; else \"$@\"; fi; }
if [ $(id -u) = 0 ]; then chown nobody . $sockets; fi
run $bin/initdb -D $data -U me -A trust --no-sync -E UTF8 --locale=C > /dev/null || exit 1
run $bin/postgres -D $data -k $sockets -c listen_addresses= -c fsync=off > log 2>&1 & server=$!
ask() { psql -h $sockets -U me -d postgres -qAtc \"$@\"; }
until ask 'select 1' > /dev/null 2>&1; do kill -0 $server || { cat log; exit 1; }; sleep 0.1; done
ask 'create table t(a int primary key, b text); insert into t select i, md5(i::text) from generate_series(1, 50000) i; create index on t(b)'
ask 'select count(*), min(b), max(b) from t where a % 3 = 0'
ask 'set max_parallel_workers_per_gather = 2; select sum(length(b || repeat(b, a % 5))) from t'
ask 'update t set b = b || b; vacuum full t; select md5(string_agg(b, null order by a)) from t' 2>&1 | tail -1
kill -INT $(head -1 $data/postmaster.pid); wait $server; echo ended $?; rm -rf $data $sockets log";

/// Python's own tests, of modules that allocate much, fork, or call C.
const PYTHON_TESTS: &str = "
python3 -m test -q test_dict test_list test_bytes test_json test_gc test_weakref test_pickle test_zlib test_lzma \
    test_sqlite3 test_ctypes test_fork1 test_struct test_array test_thread > log 2>&1 || tail -20 log
grep -E '^(Result|All [0-9]+ tests|[0-9]+ tests? (OK|failed|skipped))' log; rm -rf log";

const TOOLS: &str = "
seq 100000 | jq -s 'map({a: ., b: (. | tostring)}) | map(select(.a % 7 == 0)) | length, (map(.a) | add)'
head -c 8000000 /usr/bin/perl /usr/bin/gdb > input 2> /dev/null
xz -T2 -3 -k input; zstd -q -T2 input; xz -dc input.xz | sha256sum; zstd -dc input.zst | sha256sum
rm input*
openssl enc -aes-128-cbc -k a -nosalt -pbkdf2 -in /bin/bash | sha256sum
zsh -f -c 'a=({1..20000}); echo ${#a} ${(j:,:)a[1,5]}; for i in {1..100}; do b=$(echo $i); done; echo $b'
php -r '$a = []; for ($i = 0; $i < 100000; $i++) $a[] = str_repeat(\"x\", $i % 60) . $i; sort($a); echo md5(implode($a)), \"\\n\";'";

const JAVA: &str = "
cat > A.java <<X
public class A { public static void main(String[] a) throws Exception {
  var list = new java.util.ArrayList<String>(); for (int i = 0; i < 200000; i++) list.add(\"x\" + i); System.out.println(list.size());
  var threads = new Thread[4]; for (int i = 0; i < 4; i++) { threads[i] = new Thread(() -> { var b = new StringBuilder(); for (int j = 0; j < 100000; j++) b.append(j); }); threads[i].start(); }
  for (var thread : threads) thread.join(); System.out.println(\"done\"); } }
X
if java A.java 2> errors; then :; else java -version > /dev/null 2>&1 && echo a runtime without a compiler; fi; rm -f errors";

/// Programs that take longer, or that few have installed.
#[test]
#[ignore = "minutes: `.ci/run full` runs it"]
fn servers_media_and_runtimes() {
    let scripts = [
        Script::new(&["nginx", "curl"], NGINX),
        Script::new(&["ffmpeg"], FFMPEG),
        Script::new(&["psql", "setpriv"], POSTGRES),
        Script::new(&["jq", "xz", "zstd", "openssl", "zsh", "php"], TOOLS),
        Script::new(&["java"], JAVA),
    ];
    for script in scripts {
        script.compare();
    }
}

/// The compiler and its own tools, with the user's toolchain.
#[test]
#[ignore = "minutes: `.ci/run full` runs it"]
fn cargo_and_rustc() {
    let home = std::env::var("HOME").unwrap_or_default();
    let toolchains = std::env::var("RUSTUP_HOME").unwrap_or(format!("{home}/.rustup"));
    let text = format!("export RUSTUP_HOME={toolchains} RUSTUP_TOOLCHAIN={}\n{RUST}", toolchain());
    Script::new(&["cargo"], &text).compare();
}

/// Returns the name of the toolchain that this test was built with.
fn toolchain() -> String {
    let cargo = Path::new(env!("CARGO"));
    let name = cargo.ancestors().nth(2).and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Debian's Python has no tests; pyenv's and others have.
#[test]
#[ignore = "minutes: `.ci/run full` runs it"]
fn python_passes_its_own_tests() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_tests = |python: &PathBuf| {
        let words = [python.as_os_str(), "-c".as_ref(), "import test.test_json".as_ref()];
        python.is_file() && Job::new(words).bare().status.success()
    };
    let Some(python) = std::env::split_paths(&path).map(|folder| folder.join("python3")).find(has_tests) else {
        return skipped("no Python here has its tests");
    };
    // A version manager's shell script starts the interpreter.
    let asked = Job::new([python.as_os_str(), "-c".as_ref(), "import sys; print(sys.executable)".as_ref()]).bare();
    let python = asked.text().trim_end().to_owned();
    let text = format!("python3() {{ {python} \"$@\"; }}\n{PYTHON_TESTS}");
    let script = Script { variable: Some(("PYTHONMALLOC", "malloc")), ..Script::new(&["python3"], &text) };
    let outcome = script.compare().unwrap();
    assert!(outcome.text().contains("SUCCESS"), "{outcome:?}");
}

/// The shells of the distribution, with files that they include.
#[test]
fn shells() {
    for shell in ["bash", "dash", "zsh"] {
        let Some(path) = installed(shell) else { continue };
        let script = "i=0; while [ $i -lt 2000 ]; do x=$x$i; i=$((i+1)); done; echo ${#x}; echo $(echo a | cat)";
        same(&Job::new([path.as_os_str(), "-c".as_ref(), script.as_ref()]));
    }
}
