use proptest::prelude::*;

use super::*;

const FILE: &str = "\
MODULE Linux x86_64 D3096ED481217FD4C16B29CD9BC208BA0 store
INFO CODE_ID D46E09D32181D47FC16B29CD9BC208BA
FILE 0 /home/me/store/main.c
FILE 7 /home/me/store/list of.h
INLINE_ORIGIN 0 List::push(int)
INLINE_ORIGIN 1 grow
FUNC 1000 40 0 put(int)
INLINE 0 12 0 0 1010 20
INLINE 1 31 7 1 1018 8 1028 2
1000 10 10 0
1010 8 30 7
1018 8 99 7
1020 8 32 7
1028 8 98 7
1030 10 14 0
FUNC m 1100 10 0 folded
1100 8 5 0
PUBLIC 10a0 0 after_put
PUBLIC m 2000 0 start
STACK CFI INIT 1000 40 .cfa: $rsp 8 + .ra: .cfa -8 + ^
";

fn shown(address: u64) -> Vec<String> {
    shown_of(FILE, address)
}

fn shown_of(file: &str, address: u64) -> Vec<String> {
    let symbols = Symbols::read(file.as_bytes()).unwrap();
    let Some(function) = symbols.function(address) else {
        let export = symbols.export(file.as_bytes(), address);
        return export.map(|(name, _)| String::from_utf8(name).unwrap()).into_iter().collect();
    };
    let body = Body::read(file.as_bytes(), function.at);
    let frame = |frame: RawFrame| {
        let name = String::from_utf8(frame.name.unwrap()).unwrap();
        let file = frame.file.as_deref().and_then(|file| file.rsplit('/').next()).unwrap_or("?").to_owned();
        format!("{name} {file}:{}", frame.line.unwrap_or(0))
    };
    symbols.frames(file.as_bytes(), function, &body, address).into_iter().map(frame).collect()
}

#[test]
fn an_address_has_its_function_with_what_was_inlined() {
    assert_eq!(shown(0x100f), ["put(int) main.c:10"]);
    assert_eq!(shown(0x1010), ["List::push(int) list of.h:30", "put(int) main.c:12"]);
    assert_eq!(shown(0x101f), ["grow list of.h:99", "List::push(int) list of.h:31", "put(int) main.c:12"]);
    assert_eq!(shown(0x1029), ["grow list of.h:98", "List::push(int) list of.h:31", "put(int) main.c:12"]);
    assert_eq!(shown(0x102a), ["List::push(int) list of.h:98", "put(int) main.c:12"]);
    assert_eq!(shown(0x1030), ["put(int) main.c:14"]);
    // Code without a line.
    assert_eq!(shown(0x110f), ["folded ?:0"]);
    // An exported name applies up to the next function.
    assert_eq!(shown(0x10ff), ["after_put"]);
    assert_eq!(shown(0x2fff), ["start"]);
    assert!(shown(0x12000).is_empty());
    assert!(shown(0x1050).is_empty() && shown(0x1110).is_empty() && shown(0).is_empty());
}

#[test]
fn what_dump_syms_has_written_is_read() {
    let file = include_str!("../../tests/breakpad/keeps.sym");
    assert_eq!(
        shown_of(file, 0x1182),
        ["store::List<int>::push(int) keeps.cc:11", "store::List<int>::fill(int) keeps.cc:15"]
    );
    assert_eq!(shown_of(file, 0x1185), ["store::List<int>::fill(int) keeps.cc:14"]);
    assert_eq!(shown_of(file, 0x114b), ["main keeps.cc:23"]);
    assert_eq!(shown_of(file, 0x1051), ["_start"]);
    assert!(shown_of(file, 0x1025).is_empty(), "a section");
}

#[test]
fn the_identifier_is_the_build_id_as_a_guid() {
    let build_id: Vec<u8> = (1..=20).collect();
    assert_eq!(debug_id(&build_id), "0403020106050807090A0B0C0D0E0F100");
    assert_eq!(debug_id(&[0xab]), "000000AB0000000000000000000000000");
    assert_eq!(Symbols::read(FILE.as_bytes()).unwrap().debug_id, "D3096ED481217FD4C16B29CD9BC208BA0");
}

#[test]
fn an_error_has_its_place_and_its_reason() {
    let error = |file: String| Symbols::read(file.as_bytes()).unwrap_err().to_string();
    let change = |old, new| error(FILE.replace(old, new));
    assert_eq!(error(String::new()), "line 1 (byte 0): it does not begin with a MODULE record");
    assert_eq!(change("MODULE", "MODUL"), "line 1 (byte 0): there is no record `MODUL`");
    assert_eq!(
        change("FUNC 1000 40", "FUNC 1000 4x"),
        "line 7 (byte 220): the size `4x` is not a hexadecimal number of 64 bits"
    );
    assert_eq!(change("1000 10 10 0", "1000 10 10"), "line 10 (byte 298): the number of the file is missing");
    assert_eq!(
        change("1000 10 10 0", "1000 10 +1 0"),
        "line 10 (byte 298): the line `+1` is not a decimal number of 64 bits"
    );
    assert_eq!(change("1018 8 1028 2", "1018 8 1028"), "line 9 (byte 268): the size is missing");
    assert_eq!(change("1000 10 10 0", "1000 10 10 0 7"), "line 10 (byte 298): there is more behind it: `7`");
    assert!(change("FILE 0", "FILE 18446744073709551616").contains("is not a decimal number of 64 bits"));
    assert!(change("FUNC m 1100 10 0 folded", "PUBLIC 1 0 f").contains("there is no FUNC record before it"));
    assert!(change("FILE 0 /home", "MODULE a b 0 c\nFILE 0 /home").ends_with("a second MODULE record"));
    // Code without a line, as Microsoft's tools write it.
    Symbols::read(FILE.replace("1000 10 10 0", "1000 10 -17 0").replace('\n', "\r\n").as_bytes()).unwrap();
}

proptest! {
    #[test]
    fn damaged_files_are_no_danger(changes in prop::collection::vec((0..FILE.len(), 0_usize..9, prop::sample::select(vec![
        "", " ", "\n", "-1", "ffffffffffffffff", "18446744073709551615", "m", "FUNC ", "INLINE 0 0 0 0 ", "\u{80}", "0",
    ])), 0..6)) {
        let mut file = FILE.as_bytes().to_vec();
        for (at, length, word) in changes {
            let at = at.min(file.len());
            let end = (at + length).min(file.len());
            file.splice(at..end, word.bytes());
        }
        exercise(&file);
    }

    #[test]
    fn nor_is_anything_else(data: Vec<u8>) {
        exercise(&data);
        exercise(&[b"MODULE Linux x86_64 00 a\nFUNC 0 9 0 f\n", &data[..]].concat());
    }
}
