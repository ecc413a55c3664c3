use super::*;

#[test]
fn a_report_within_another_one_is_left_out() {
    prepare();
    let length = || bytes(MAPPING.load(Ordering::Acquire)).load(Ordering::Acquire) as usize;
    write(|out| {
        out.write_str("outer\n")?;
        write(|out| out.write_str("a report of a fault within\n"));
        out.write_str("end\n")
    });
    assert_eq!(length(), "outer\nend\nmaps\n\n".len());
    write(|out| out.write_str("next\n"));
    assert_eq!(length(), "outer\nend\nmaps\n\nnext\nmaps\n\n".len());
    clear();
    assert_eq!(length(), 0);
}
