use heapledger_core::sample::Random;

#[test]
fn all_processors_agree() {
    let mut random = Random::new(1);
    for _ in 0..if cfg!(miri) { 50 } else { 10_000 } {
        // Only a few different bytes, so that there are matches.
        let words = [random.word() & 0x0301_0001_0281_80ff, random.word() & 0x8003_0101_ff00_8101];
        for byte in [0, 1, 2, 3, 0x7f, 0x80, 0x81, 0xff] {
            let mut bytes = [0; 16];
            bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_le_bytes())).for_each(|(to, from)| *to = from);
            let each = bytes.iter().map(|&b| b == byte);
            let expected = each.rev().fold(0, |mask, equal| mask << 1 | u32::from(equal));
            assert_eq!(super::portable::equal_bytes(bytes, byte), expected);
            assert_eq!(super::equal_bytes(bytes, byte), expected);
        }
    }
}
