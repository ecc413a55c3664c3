use std::string::String;
use std::vec::Vec;

use super::*;

/// Parses a text. Returns the options and the texts that were refused.
fn parsed(text: &str) -> (AllocatorOptions, Vec<String>) {
    let (mut options, mut refused) = (AllocatorOptions::new(), Vec::new());
    parse::parse(text.as_bytes(), &mut options, &mut |text, reason| {
        refused.push(std::format!("{}: {reason}", String::from_utf8_lossy(text)));
    });
    (options, refused)
}

fn accepted(text: &str) -> AllocatorOptions {
    let (options, refused) = parsed(text);
    assert!(refused.is_empty(), "{text}: {refused:?}");
    options
}

#[test]
fn letters_have_the_meanings_of_the_reference() {
    assert_eq!(accepted(""), AllocatorOptions::new());
    let options = AllocatorOptions::new();
    assert_eq!(accepted("4fj2Q"), options.dirty_shift(-4).poison(Poison::CacheLines(2)));
    assert_eq!(accepted("ff3F"), options.dirty_shift(1));
    assert_eq!(accepted("99F"), options.dirty_shift(16));
    assert_eq!(accepted("JZQQ"), options.junk(true).zero(true).poison(Poison::All));
    assert_eq!(accepted("Q"), options.poison(Poison::CacheLines(1)));
    assert_eq!(accepted("JZQR jzqr"), options);
    assert_eq!(accepted("P"), options.page_shift(1));
    assert_eq!(accepted("2PJP"), options.page_shift(3).junk(true));
    assert_eq!(accepted("9P"), options.page_shift(4));
}

#[test]
fn words_and_letters_may_be_mixed() {
    let options = accepted("junk, poison=4;2F limit=3M\tthp=never stats-at-exit random guard dirty-shift=-3");
    let expected = AllocatorOptions::new().junk(true).poison(Poison::CacheLines(4)).dirty_shift(-3);
    let expected = expected.bytes_max(3 << 20).no_large_pages(true).statistics_at_exit(true);
    assert_eq!(options, expected.randomize(true).guards(true));
    assert_eq!(accepted("poison"), accepted("poison=all"));
    assert_eq!(accepted("poison poison=none"), AllocatorOptions::new());
    assert_eq!(accepted("limit=4096").bytes_max, 4096);
    assert_eq!(accepted("limit=2G").bytes_max, 2 << 30);
    assert_eq!(accepted("decay=10"), AllocatorOptions::new().decay(10));
    assert_eq!(accepted("keyed"), AllocatorOptions::new().keyed_lists(true));
    assert_eq!(accepted("page-shift=4"), AllocatorOptions::new().page_shift(4));
}

#[test]
fn other_letters_and_words_are_named_and_ignored() {
    let cases = [
        ("JxZ", "x: unknown letter"),
        ("page-shift=5", "page-shift=5: expected a number from 0 to 4, such as `page-shift=2`"),
        ("zero=1", "zero=1: unknown option"),
        ("howdy", "howdy: unknown option"),
        ("limit=1.5M", "limit=1.5M: expected a number of bytes, such as `limit=512M`"),
        ("limit=99999999999999999999", "limit=99999999999999999999: expected a number of bytes, such as `limit=512M`"),
        ("dirty-shift=17", "dirty-shift=17: expected a number from -16 to 16, such as `dirty-shift=-2`"),
        ("thp=always", "thp=always: expected `thp=never` or `thp=default`"),
        ("decay=1s", "decay=1s: expected a number of seconds, such as `decay=10`"),
        ("poison=some", "poison=some: expected `poison=none`, `poison=all` or `poison=CACHE_LINES`"),
    ];
    for (text, reason) in cases {
        let (_, refused) = parsed(text);
        assert_eq!(refused, [reason], "{text}");
    }
    assert_eq!(parsed("JxZ").0, AllocatorOptions::new().junk(true).zero(true));
}

#[test]
fn no_text_makes_the_parser_panic() {
    let mut random = 88_172_645_463_325_252_u64;
    let alphabet = b"fFjJzZqQrRP0123456789=-,; poisnlmtdecay\xff\0";
    for _ in 0..20_000 {
        let text: Vec<u8> = (0..random % 24)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                alphabet[(random % alphabet.len() as u64) as usize]
            })
            .collect();
        random = random.wrapping_add(1);
        let mut options = AllocatorOptions::new();
        parse::parse(&text, &mut options, &mut |text, _| assert!(!text.is_empty()));
        assert!((-16..=16).contains(&options.dirty_shift), "{text:?}");
    }
}
