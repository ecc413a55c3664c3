use super::*;
use heapledger_recording::Recording;

#[test]
fn a_replaced_file_is_whole_at_every_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.hl");
    let (state, mut compressor) = (FileState::default(), Compressor::new());
    let mut file = Destination::replaced(File::create(&path).unwrap(), false);
    let is_complete = || Recording::open(&std::fs::read(&path).unwrap()).map(|recording| recording.complete());
    file.snapshot(&[], &Footer::default(), &mut compressor, &state);
    assert!(is_complete().is_err(), "nothing is written before the file has its name");
    file.name(path.clone());
    file.snapshot(&[], &Footer::default(), &mut compressor, &state);
    assert_eq!(is_complete(), Ok(false));
    std::fs::create_dir(directory.path().join("x.hl.new")).unwrap();
    file.snapshot(&[], &Footer::default(), &mut compressor, &state);
    assert!(file.finish(&Footer::default(), &mut compressor, &state).is_err(), "its place is taken");
    assert_eq!(is_complete(), Ok(false));
    std::fs::remove_dir(directory.path().join("x.hl.new")).unwrap();
    file.finish(&Footer { complete: true, ..Footer::default() }, &mut compressor, &state).unwrap();
    assert_eq!(is_complete(), Ok(true));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}
