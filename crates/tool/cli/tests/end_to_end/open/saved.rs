//! The page that is saved as one file: opened from disk, without a server.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::browser::marionette::Firefox;
use crate::browser::webdriver::Chromium;
use crate::harness::{Job, Recording, Scratch, exited, heapledger};

/// A name that would be a script if it were taken for markup.
const HOSTILE: &str = "</script><img src=x onerror=document.title=1>";

/// Saves the page about files.
fn save(scratch: &Scratch, files: &[&Path]) -> PathBuf {
    let page = scratch.file("saved.html");
    let words = files.iter().map(|file| file.as_os_str());
    let saved = heapledger(["open".as_ref(), "--save".as_ref(), page.as_os_str()].into_iter().chain(words));
    let said = String::from_utf8_lossy(&saved.stderr);
    assert!(saved.status == exited(0) && said.contains("answers, and opens in any browser"), "{said}");
    page
}

/// The parameters of an address for each moment.
const MOMENTS: [&str; 4] = ["", "&at=peak", "&at=end", "&total="];

/// JavaScript with three functions. `go` waits for a view, which is another one than the view
/// before; `walk` goes through all views at some moments. `text` returns the text of an element in
/// a view.
const WALK: &str = r"
const go = async (place) => {
    location.hash = `#/${place}`;
    const view = place.split('?')[0];
    for (;;) {
        const main = document.querySelector('main');
        const waits = main === null || main.querySelector('[data-waiting]') !== null;
        if (!waits && main.dataset.view === view && main.textContent.length > 20) return main;
        await new Promise((done) => setTimeout(done, 20));
    }
};
const walk = async (moments) => {
    while (document.querySelector('nav button') === null) await new Promise((done) => setTimeout(done, 20));
    const views = ['summary', 'timeline', 'flame', 'tree', 'table', 'treemap', 'leaks', 'temporary', 'reallocations',
        'sizes', 'blocks', 'growth', 'advice', 'answers'];
    const failures = [];
    for (const moment of moments) {
        for (const view of views) {
            const main = await go(`${view}?file=0${moment}`);
            for (const one of main.querySelectorAll('.failure')) failures.push(`${view} ${moment}: ${one.textContent}`);
        }
    }
    return failures;
};
const text = async (place, selector) => {
    const main = await go(place);
    return main.querySelector(selector)?.textContent ?? `no ${selector}: ${main.textContent.slice(0, 500)}`;
};
";

/// JavaScript that returns the failures that a page shows at a moment. A browser gives each script
/// a minute, which is little on a busy machine.
fn walk(moment: &str) -> String {
    format!("(async () => {{ {WALK} return await walk(['{moment}']); }})()")
}

/// JavaScript that returns what a page shows about a recording of `mix`.
fn look() -> String {
    format!(
        "(async () => {{ {WALK}
        for (let click = 0; click < 2; click += 1) document.querySelector('[aria-label^=Units]').click();
        return {{
            table: await text('table?file=0&at=end', '.total'),
            tree: await text('tree?file=0&at=end&function=mix_step', '.total'),
            sites: await text('table?file=0&by=site&total=', '.total'),
            small: await text('tree?file=0&total=&threshold=0.001%25', '.total'),
            notSaved: await text('table?file=0&thread=7', '.failure'),
            about: document.querySelector('nav').textContent,
        }};
        }})()"
    )
}

/// Returns the line of totals that the page shows with an answer of the verb.
fn total(recording: &Recording, verb: &str, options: &[&str]) -> String {
    let answer = recording.ask(verb, options);
    let figure = |name: &str| {
        let digits = answer["total"][name].as_u64().unwrap().to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    format!("{} in {} blocks", figure("bytes"), figure("blocks"))
}

/// Compares what the page showed with the verbs.
fn assert_shown(seen: &Value, recording: &Recording) {
    for (name, verb, options) in [
        ("table", "top", &["--at=end"][..]),
        ("tree", "tree", &["--at=end", "--function=mix_step"]),
        ("sites", "top", &["--by=site", "--total"]),
        ("small", "tree", &["--total", "--threshold=0.001%"]),
    ] {
        let (shown, expected) = (seen[name].as_str().unwrap(), total(recording, verb, options));
        assert!(shown.starts_with(&expected), "{name}: {shown}, not {expected}");
    }
    let name = recording.path.file_name().unwrap().to_str().unwrap();
    let not_saved = seen["notSaved"].as_str().unwrap();
    assert!(not_saved.contains("this file was saved with"), "{not_saved}");
    assert!(not_saved.contains(&format!("heapledger top {name} --thread 7")), "{not_saved}");
    assert!(seen["about"].as_str().unwrap().contains("saved with"), "{seen:#}");
}

/// JavaScript that returns the texts of a page about a file with hostile names, and its title.
fn look_at_hostile() -> String {
    format!(
        "(async () => {{ {WALK}
        await walk(['', '&total=']);
        const names = await text('table?file=0&by=function&total=', '.grid');
        return {{names, title: document.title, elements: document.querySelectorAll('img').length}};
        }})()"
    )
}

fn hostile(scratch: &Scratch) -> PathBuf {
    let file = scratch.write("<img src=x onerror=document.title=1>.folded", format!("main;{HOSTILE} 100\nmain 7\n"));
    save(scratch, &[&file])
}

fn assert_harmless(seen: &Value) {
    // Short names leave out what looks like the arguments of a template.
    assert!(seen["names"].as_str().unwrap().contains("/script"), "{seen:#}");
    assert!(seen["title"].as_str().unwrap().contains("<img src=x"), "{seen:#}");
    assert_eq!(seen["elements"], 0, "{seen:#}");
}

fn url(page: &Path) -> String {
    format!("file://{}", page.display())
}

#[test]
fn a_page_is_saved_whole_or_not_at_all() {
    let scratch = Scratch::new();
    let file = scratch.write("a.folded", "main;f 100\n");
    let page = save(&scratch, &[&file]);
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>\n"));
    assert!(!text.contains("http-equiv=\"refresh\"") && text.contains("default-src 'none'; script-src 'sha256-"));
    let again = |more: &[&str]| {
        let words = ["open".as_ref(), "--save".as_ref(), page.as_os_str(), file.as_os_str()];
        heapledger(words.into_iter().chain(more.iter().map(OsStr::new)))
    };
    let refused = again(&[]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status == exited(1) && said.contains("hint: to replace it, add --force"), "{refused:?}");
    assert_eq!(again(&["--force"]).status, exited(0));
    let other = again(&["--port=80"]);
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("cannot be used with"));
    // It never takes the place of a file that is read.
    let own = heapledger(["open".as_ref(), "--force".as_ref(), "--save".as_ref(), file.as_os_str(), file.as_os_str()]);
    assert!(!own.status.success());
    assert_eq!(fs::read_to_string(&file).unwrap(), "main;f 100\n");
    let stdout = heapledger(["open".as_ref(), "--save=-".as_ref(), file.as_os_str()]);
    assert!(stdout.status.success() && stdout.stdout.starts_with(b"<!DOCTYPE html>"), "{stdout:?}");
}

#[test]
#[ignore = "a real Chromium; in .ci/run"]
fn the_saved_page_works_from_disk_in_chromium() {
    let scratch = Scratch::new();
    let Some(chromium) = Chromium::start(&scratch) else { return };
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let page = save(&scratch, &[&recording.path]);
    chromium.open(&url(&page));
    for moment in MOMENTS {
        assert_eq!(chromium.eval(&walk(moment)), json!([]), "{moment}");
    }
    assert_shown(&chromium.eval(&look()), &recording);
    assert_eq!(chromium.log(), json!([]));
    if let Some(pictures) = std::env::var_os("PICTURES") {
        chromium.resize(1280, 800);
        for view in ["summary", "timeline", "flame", "tree", "table"] {
            chromium.eval(&format!("(async () => {{ {WALK} await go('{view}?file=0'); }})()"));
            chromium.picture(&Path::new(&pictures).join(format!("saved-{view}.png")));
        }
        chromium.eval(&format!("(async () => {{ {WALK} await go('table?file=0&thread=7'); }})()"));
        chromium.picture(&Path::new(&pictures).join("saved-not.png"));
    }
    fs::remove_file(&page).unwrap();
    let page = hostile(&scratch);
    chromium.open(&url(&page));
    assert_harmless(&chromium.eval(&look_at_hostile()));
    assert_eq!(chromium.log(), json!([]));
}

#[test]
#[ignore = "a real Firefox; in .ci/run"]
fn the_saved_page_works_from_disk_in_firefox() {
    let scratch = Scratch::new();
    let Some(mut firefox) = Firefox::start(&scratch) else { return };
    // Marionette lets files read each other; readers of the page have not asked for that.
    firefox.in_browser("Services.prefs.setBoolPref('security.fileuri.strict_origin_policy', true)");
    let run = |firefox: &mut Firefox, look: &str| firefox.run(&format!("{look}.then(arguments[0])"), &[]);
    // Errors and violations of the policy, of this page alone.
    let log = "Services.console.getMessageArray().filter((one) => one instanceof Ci.nsIScriptError && \
               one.sourceName.startsWith('file:')).map((one) => one.toString())";
    let (_, recording) = Job::fixture("mix", "2000").recorded(&scratch);
    let page = save(&scratch, &[&recording.path]);
    firefox.open(&url(&page));
    for moment in MOMENTS {
        assert_eq!(run(&mut firefox, &walk(moment)), json!([]), "{moment}");
    }
    let seen = run(&mut firefox, &look());
    assert_shown(&seen, &recording);
    assert_eq!(firefox.in_browser(log), json!([]));
    fs::remove_file(&page).unwrap();
    let page = hostile(&scratch);
    firefox.open(&url(&page));
    let seen = run(&mut firefox, &look_at_hostile());
    assert_harmless(&seen);
    assert_eq!(firefox.in_browser(log), json!([]));
}
