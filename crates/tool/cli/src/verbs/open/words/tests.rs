use clap::CommandFactory;

use super::*;
use crate::args::{Arguments, Verb};

fn line(verb: &str, query: &str) -> std::result::Result<String, String> {
    line_about(verb, query, &["a.hl"])
}

fn line_about(verb: &str, query: &str, paths: &[&str]) -> std::result::Result<String, String> {
    let files: Vec<Asked<'_>> = paths.iter().map(|path| Asked { path: Path::new(path), when: None }).collect();
    let words = words(&Question::parse(verb, query).unwrap(), &files, &[("symbols", "/s".into())]);
    let words = words.map_err(|failure| failure.parts().1.remove(0))?;
    let words: Vec<String> = words.into_iter().map(|word| word.into_string().unwrap()).collect();
    Ok(words.join(" "))
}

#[test]
fn options_are_words_of_the_verb() {
    for (verb, query, words) in [
        ("top", "file=0", "top --symbols=/s --json a.hl"),
        ("top", "by=type&at=peak&rows=5", "top --by=type --at=peak --rows=5 --symbols=/s --json a.hl"),
        (
            "tree",
            "bottom-up=&function=a&function=b",
            "tree --bottom-up --function=a --function=b --symbols=/s --json a.hl",
        ),
        // Each value stays one word, and belongs to its option.
        ("top", "function=--output=x", "top --function=--output=x --symbols=/s --json a.hl"),
        ("top", "function=a+b%00--x", "top --function=a b\0--x --symbols=/s --json a.hl"),
        ("top", "by=", "top --by= --symbols=/s --json a.hl"),
        ("top", "arena=a", "top --heap=a --symbols=/s --json a.hl"),
        ("callers", "of=main&total=", "callers --total --symbols=/s --json main a.hl"),
        ("heap/census", "by=bucket", "heap census --by=bucket --json a.hl"),
        ("heap/node", "id=7", "heap node --json a.hl 7"),
        ("heap/find", "what=strings&what=closures", "heap find --json a.hl strings closures"),
        ("reports/show", "verbose=", "reports show --verbose --json a.hl"),
        ("dmd", "by=line", "dmd --by=line --symbols=/s --json a.hl"),
    ] {
        assert_eq!(line(verb, query), Ok(format!("heapledger {words}")), "{verb} {query}");
    }
    assert_eq!(line_about("diff", "", &["a", "b"]), Ok("heapledger diff --symbols=/s --json a b".into()));
    assert_eq!(line_about("heap/diff", "", &["a", "b"]), Ok("heapledger heap diff --json a b".into()));
}

#[test]
fn files_are_taken_for_nothing_else() {
    for (path, word) in [
        ("77", "./77"),
        ("-o", "./-o"),
        ("-", "./-"),
        ("http://127.0.0.1", "./http://127.0.0.1"),
        ("/77", "/77"),
        ("./77", "./77"),
        ("d/a.hl", "d/a.hl"),
    ] {
        assert_eq!(line_about("reports/show", "", &[path]), Ok(format!("heapledger reports show --json {word}")));
    }
    let asked = Asked { path: Path::new("a.hl"), when: Some("1.5s") };
    assert_eq!(file(&asked), "a.hl@1.5s");
}

#[test]
fn a_page_can_name_no_file_and_write_none() {
    for (verb, query) in [
        ("top", "output=x"),
        ("top", "o=x"),
        ("top", "force="),
        ("top", "symbols=/etc"),
        ("top", "debug-dir=/etc"),
        ("top", "sysroot=/etc"),
        ("leaks", "suppressions=/etc/passwd"),
        ("advise", "replay=/etc/passwd"),
        ("dmd", "save=x"),
        ("dmd", "page="),
        ("reports/show", "page="),
        ("timeline", "svg="),
        ("flame", "collapsed="),
        ("top", "json="),
        ("top", "csv="),
        ("top", "color=always"),
        ("top", "help="),
        ("top", "nonsense=1"),
        ("top", "=1"),
        ("top", "--by=type"),
        ("top", "by%3dx=type"),
        // A word that is neither an option nor a file.
        ("callers", "of=--output%3dx"),
        ("callers", "of=-o"),
        ("callers", "input=x"),
        ("rss", "command=rm"),
        ("rss", "target=1"),
        ("heap/find", "file=1&file_=1&newer-than=x"),
        ("heap/census", "newer-than=x"),
        // A flag has no value.
        ("top", "total=1"),
        ("nonsense", ""),
        ("", ""),
        ("heap", "census="),
        ("heap/nonsense", ""),
        ("top/x", ""),
    ] {
        let asked = line(verb, query);
        let is_bare_heap = verb == "heap";
        assert!(asked.is_err() || is_bare_heap, "{verb} {query}: {asked:?}");
    }
    assert!(line_about("top", "", &["a", "b"]).unwrap_err().contains("not about so many files"));
}

/// Each option of the verbs that the page asks is known to name no file, or is refused.
#[test]
fn all_options_that_name_files_are_refused() {
    let mut root = Arguments::command();
    root.build();
    let verbs =
        ["summary", "top", "tree", "timeline", "leaks", "blocks", "diff", "advise", "dmd", "rss", "info", "flame"];
    for verb in verbs {
        for arg in root.find_subcommand(verb).unwrap().get_arguments() {
            let Some(name) = arg.get_long() else { continue };
            let shown = arg.get_value_names().unwrap_or_default().join(" ");
            let looks_like_a_file = ["FILE", "DIR", "PATH", "JSON"].iter().any(|word| shown.contains(word));
            let asked = line(verb, &format!("{name}=x"));
            assert!(!looks_like_a_file || asked.is_err(), "{verb} --{name} {shown}: {asked:?}");
        }
    }
}

#[test]
fn files_have_numbers_and_moments() {
    assert_eq!(file_number("0").unwrap(), (0, None));
    assert_eq!(file_number("12@peak").unwrap(), (12, Some("peak")));
    assert_eq!(file_number("1@1.5s").unwrap(), (1, Some("1.5s")));
    for wrong in ["", "x", "-1", "0@", "0@never", "0@1s@2s", "/etc/passwd", "99999999999999999999999"] {
        assert!(file_number(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_words_are_parsed_as_the_verb() {
    let files = [Asked { path: Path::new("a.hl"), when: None }];
    let question = Question::parse("tree", "by=thread,owner&bottom-up=").unwrap();
    let arguments = args::parse(words(&question, &files, &[]).unwrap());
    let Ok(Arguments { verb: Verb::Tree(tree), .. }) = arguments else { panic!("{arguments:?}") };
    assert!(tree.bottom_up && tree.by.len() == 2 && tree.input.data.json);
}
