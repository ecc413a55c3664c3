use super::*;

#[test]
fn the_library_comes_and_goes() {
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let library = Library::install(b"not really", &[elsewhere.path().to_owned()]).unwrap();
    assert_eq!(std::fs::read(library.path()).unwrap(), b"not really");
    assert_eq!(std::fs::read_link(&library.hooks()[0]).unwrap(), elsewhere.path());
    let path = library.path().to_owned();
    drop(library);
    assert!(!path.parent().unwrap().exists());
    assert!(elsewhere.path().exists());
}

#[test]
fn the_allocator_comes_after_the_hooks() {
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let mut library = Library::install(b"preload", &[elsewhere.path().to_owned()]).unwrap();
    library.add_hook("checks.so", b"checks").unwrap();
    library.add_allocator(&CommandAllocator::System).unwrap();
    assert_eq!(library.hooks().len(), 2);
    library.add_allocator(&CommandAllocator::Carried(b"allocator"[..].into())).unwrap();
    let carried = library.hooks().last().unwrap();
    assert!(carried.ends_with(ALLOCATOR_FILE_NAME), "{carried:?}");
    assert_eq!(std::fs::read(carried).unwrap(), b"allocator");
    library.add_allocator(&CommandAllocator::File(elsewhere.path().to_owned())).unwrap();
    assert_eq!(library.hooks().last().unwrap(), elsewhere.path());
    // A path that the loader would take for two.
    let spaced = tempfile::Builder::new().prefix("a b").tempfile().unwrap();
    library.add_allocator(&CommandAllocator::File(spaced.path().to_owned())).unwrap();
    let link = library.hooks().last().unwrap();
    assert!(link.parent() == Some(library.directory()) && !link.ends_with(ALLOCATOR_FILE_NAME), "{link:?}");
    assert_eq!(std::fs::read_link(link).unwrap(), spaced.path());
}

#[test]
fn names_are_hexadecimal_and_differ() {
    let (first, second) = (random_digits().unwrap(), random_digits().unwrap());
    assert_ne!(first, second);
    assert!(first.iter().all(u8::is_ascii_hexdigit));
}

#[test]
fn what_a_killed_recorder_left_behind_is_removed() {
    let parent = tempfile::tempdir().unwrap();
    let make = |digit: &str| {
        let directory = parent.path().join(format!("{DIRECTORY_PREFIX}{}", digit.repeat(NAME_LENGTH)));
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join(FILE_NAME), "library").unwrap();
        let old = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::open(&directory).unwrap().set_modified(old).unwrap();
        directory
    };
    let (left, held, young) = (make("a"), make("b"), make("c"));
    File::open(&young).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    let _lock = lock(&held).unwrap();
    sweep(parent.path());
    assert_eq!((left.exists(), held.exists(), young.exists()), (false, true, true));
}
