use super::*;

#[test]
fn numbers_round_trip() {
    for api in Api::ALL {
        assert_eq!(Api::from_number(api as u8), Some(api));
    }
    assert_eq!(Api::from_number(0), None);
    assert_eq!(Api::from_number(200), None);
}
