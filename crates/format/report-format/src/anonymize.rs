//! Reports that can be shown to others.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use regex::Regex;

use crate::report::{Report, Reports};

/// The replacement for private text.
const ANONYMOUS: &str = "<anonymized>";

/// Texts that may be private: quoted ones; URLs; absolute paths; names with dots in them, such as
/// those of files, hosts and mailboxes. A `/` may be a `\` everywhere, as in the names of paths.
static PRIVATE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = [
        r#""[^"]*""#,
        "“[^”]*”",
        r"[A-Za-z][A-Za-z0-9+.-]*:[/\\]{2}[^\s()<>,]*",
        r"(?:^|\b[A-Za-z]:|~|[\s(=\[])[/\\][^\s()<>,]+",
        r"[\w%+@-]+(?:\.[\w@-]+)*\.[A-Za-z][\w@-]+(?:\.[\w@-]+)*",
        r"[\w%+-]+@[\w-]+",
        r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b",
        r"\[[0-9a-fA-F]*:[0-9a-fA-F:.]+\]",
    ];
    Regex::new(&parts.join("|")).ok()
});

impl Reports {
    /// Returns the reports without URLs, paths and names of files, addresses, and quoted texts, in
    /// names of processes, in paths and in descriptions. Each is replaced by `<anonymized>`.
    ///
    /// The meaning of a name cannot be known from outside: reporters that are asked for anonymous
    /// reports do it better.
    pub fn anonymized(self) -> Reports {
        let mut known = HashMap::new();
        let mut reports = self.reports;
        for report in &mut reports {
            let Report { process, path, stable_path, description, .. } = report;
            for text in [Some(process), Some(description)].into_iter().flatten() {
                *text = anonymous(text, false, &mut known);
            }
            for path in [Some(path), stable_path.as_mut()].into_iter().flatten() {
                *path = anonymous(path, true, &mut known);
            }
        }
        Reports { reports, ..self }
    }
}

/// Returns the text without private parts. The same text occurs many times, so results are
/// remembered.
fn anonymous(text: &Arc<str>, is_path: bool, known: &mut HashMap<(Arc<str>, bool), Arc<str>>) -> Arc<str> {
    let found = known.entry((text.clone(), is_path)).or_insert_with(|| {
        if is_path {
            let names: Vec<String> = text.split('/').map(anonymous_name).collect();
            names.join("/").into()
        } else {
            anonymous_name(text).into()
        }
    });
    found.clone()
}

fn anonymous_name(text: &str) -> String {
    let Some(private) = PRIVATE.as_ref() else { return ANONYMOUS.to_owned() };
    let replace = |found: &regex::Captures<'_>| {
        // The character before a path is kept.
        let before = found[0].chars().next().filter(|first| matches!(first, ' ' | '\t' | '\n' | '(' | '=' | '['));
        let is_address = found[0].starts_with('[') && found[0].ends_with(']');
        format!("{}{ANONYMOUS}", before.filter(|_| !is_address).map(String::from).unwrap_or_default())
    };
    private.replace_all(text, replace).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_private_is_gone() {
        for (text, expected) in [
            ("heap-allocated", "heap-allocated"),
            ("threads (tid=12)", "threads (tid=12)"),
            ("HashMap<Vec<u8>, (u32, f64)>", "HashMap<Vec<u8>, (u32, f64)>"),
            ("top(https:\\\\x.example\\a?b=c, id=12)", "top(<anonymized>, id=12)"),
            ("webIsolated=https://x.example (pid 7)", "webIsolated=<anonymized> (pid 7)"),
            ("string(length=3, \"abc\")", "string(length=3, <anonymized>)"),
            ("/home/me/x.txt is open", "<anonymized> is open"),
            ("file=\\home\\me", "file=<anonymized>"),
            ("C:\\Users\\me", "<anonymized>"),
            ("libfoo.so.1 (r-xp)", "<anonymized> (r-xp)"),
            ("for me@host and me.you@mail.example", "for <anonymized> and <anonymized>"),
            ("peer 192.168.7.1:80, [fe80::1]:80", "peer <anonymized>:80, <anonymized>:80"),
            ("More than 1.5 of it, e.g. half. Next.", "More than 1.5 of it, e.g. half. Next."),
        ] {
            assert_eq!(anonymous_name(text), expected);
        }
        let path = anonymous(&"explicit/files/\\home\\me/page-cache".into(), true, &mut HashMap::new());
        assert_eq!(&*path, "explicit/files/<anonymized>/page-cache");
    }
}
