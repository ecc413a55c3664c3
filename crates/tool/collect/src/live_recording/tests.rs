use std::fs;
use std::io::Write;

use heapledger_core::{Blocks, Bytes, StackId};
use heapledger_recording::{Counts, Footer, ImageCounts, ImageId, ImageStart, Live, Site, SitesEncoder, Time};

use super::*;

const IMAGE: ImageId = ImageId(0);

fn site(bytes: u64) -> Site {
    let live_end = Live { bytes: Bytes(bytes), blocks: Blocks(1) };
    Site { stack: StackId(3), allocations: Blocks(1), live_end, ..Site::default() }
}

/// Returns the chunks of some records and of a site of the image.
fn chunks(records: &[Record], bytes: u64) -> Vec<EncodedChunk> {
    let mut compressor = Compressor::new();
    let mut chunks = encode_records(records, &mut compressor).unwrap();
    chunks.extend(SitesEncoder::encode(IMAGE, &[site(bytes)], &mut compressor).unwrap());
    chunks
}

/// Returns the figures of the image at a moment.
fn figures(time: u64, bytes: u64) -> Vec<u8> {
    let counts = Counts { allocations: Blocks(time), ..Counts::default() };
    let mut writer = RecordingWriter::new();
    let counts = Record::ImageCounts(ImageCounts { image: IMAGE, counts });
    chunks(&[counts], bytes).iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer { time: Time(time), ..Footer::default() }, &mut Compressor::new());
    writer.pending().to_vec()
}

fn start() -> Vec<Record> {
    let session = Session { options: "--wait".to_owned(), ..Session::default() };
    vec![Record::Session(session), Record::ImageStart(ImageStart { image: IMAGE, pid: 7, ..ImageStart::default() })]
}

/// A file that grows, and what is read of it.
struct Growing {
    directory: tempfile::TempDir,
    writer: RecordingWriter,
    followed: Option<FollowedFile>,
}

impl Growing {
    fn new() -> Growing {
        Growing { directory: tempfile::tempdir().unwrap(), writer: RecordingWriter::new(), followed: None }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("a.hl")
    }

    /// Appends all pending bytes but the last ones.
    fn append(&mut self, chunks: &[EncodedChunk], all_but: usize) {
        chunks.iter().for_each(|chunk| self.writer.push(chunk));
        let pending = self.writer.pending();
        let mut file = fs::OpenOptions::new().create(true).append(true).open(self.path()).unwrap();
        file.write_all(&pending[..pending.len() - all_but]).unwrap();
        self.writer.clear_pending();
    }

    fn read(&mut self, figures: &[u8]) -> Result<Vec<u8>, LiveError> {
        let mut followed = FollowedFile::follow(self.followed.take(), &self.path(), std::process::id())?;
        followed.read_new()?;
        self.followed.insert(followed).with_figures(figures)
    }
}

/// Returns the live bytes of the image's sites, its allocations, and the moment.
fn state(bytes: &[u8]) -> (Vec<u64>, u64, u64) {
    let recording = Recording::open(bytes).unwrap();
    assert_eq!(recording.verify(), []);
    assert!(recording.session().unwrap().totals_only);
    let sites = recording.sites(IMAGE).rows.iter().map(|site| site.live_end.bytes.0).collect();
    (sites, recording.image_counts(IMAGE).unwrap().allocations.0, recording.footer().unwrap().time.0)
}

#[test]
fn figures_take_the_place_of_the_files() {
    let mut growing = Growing::new();
    growing.append(&encode_records(&start(), &mut Compressor::new()).unwrap(), 0);
    let bytes = growing.read(&figures(1, 100)).unwrap();
    assert_eq!(state(&bytes), (vec![100], 1, 1));
    let recording = Recording::open(&bytes).unwrap();
    assert_eq!((recording.images()[0].pid, recording.session().unwrap().options.as_str()), (7, "--wait"));
    // The file has older totals of the image.
    let counts = Record::ImageCounts(ImageCounts { image: IMAGE, counts: Counts::default() });
    growing.append(&chunks(&[counts], 50), 0);
    assert_eq!(state(&growing.read(&figures(2, 120)).unwrap()), (vec![120], 2, 2));
    assert_eq!(growing.followed.as_ref().unwrap().chunks.len(), 3);
}

/// The next file of a recording that is rotated is there before its first chunk.
#[test]
fn a_file_that_has_no_session_yet_has_one_later() {
    let mut growing = Growing::new();
    growing.append(&[], 0);
    growing.read(&figures(1, 1)).unwrap();
    let session = Session { samples: true, ..Session::default() };
    growing.append(&encode_records(&[Record::Session(session)], &mut Compressor::new()).unwrap(), 0);
    let bytes = growing.read(&figures(2, 2)).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    assert!(recording.session().is_some_and(|session| session.samples && session.totals_only));
}

#[test]
fn a_chunk_that_is_being_written_is_read_later() {
    let mut growing = Growing::new();
    growing.append(&encode_records(&start(), &mut Compressor::new()).unwrap(), 0);
    let end = growing.writer.length();
    let new = encode_records(&[Record::Text(Default::default())], &mut Compressor::new()).unwrap();
    growing.append(&new, 8);
    growing.read(&figures(1, 1)).unwrap();
    assert_eq!(growing.followed.as_ref().unwrap().next, end);
    fs::OpenOptions::new()
        .append(true)
        .open(growing.path())
        .unwrap()
        .write_all(&new[0].bytes()[new[0].bytes().len() - 8..])
        .unwrap();
    growing.read(&figures(1, 1)).unwrap();
    assert_eq!(growing.followed.as_ref().unwrap().next, growing.writer.length());
}

#[test]
fn another_file_of_the_same_name_is_read_from_its_beginning() {
    let mut growing = Growing::new();
    growing.append(&chunks(&start(), 10), 0);
    growing.read(&figures(1, 1)).unwrap();
    let mut whole = RecordingWriter::new();
    chunks(&start(), 20).iter().chain(&chunks(&[], 30)).for_each(|chunk| whole.push(chunk));
    whole.finish(&Footer::default(), &mut Compressor::new());
    fs::write(growing.path().with_extension("new"), whole.pending()).unwrap();
    fs::rename(growing.path().with_extension("new"), growing.path()).unwrap();
    assert_eq!(state(&growing.read(&figures(3, 4)).unwrap()), (vec![4], 3, 3));
    // The metadata and two chunks of sites: index and footer are not kept.
    assert_eq!(growing.followed.as_ref().unwrap().chunks.len(), 3);
}

/// Processes begin and end between the moment of the figures and the reading of the file.
#[test]
fn images_that_began_after_the_figures_count_nothing() {
    let image = |number| ImageStart { image: ImageId(number), pid: 7 + number, ..ImageStart::default() };
    let mut growing = Growing::new();
    let mut records = start();
    records.extend([1, 2].map(|number| Record::ImageStart(image(number))));
    // The sites of an image that has ended are written after its totals.
    let counts = Counts { allocations: Blocks(9), ..Counts::default() };
    records.push(Record::ImageCounts(ImageCounts { image: ImageId(2), counts }));
    growing.append(&encode_records(&records, &mut Compressor::new()).unwrap(), 0);
    let bytes = growing.read(&figures(1, 100)).unwrap();
    assert_eq!(state(&bytes), (vec![100], 1, 1));
    let recording = Recording::open(&bytes).unwrap();
    let allocations = [1, 2].map(|image| recording.image_counts(ImageId(image)).map(|counts| counts.allocations.0));
    assert_eq!(allocations, [Some(0), Some(0)]);
    // One that had totals of its sites before keeps them.
    let mut compressor = Compressor::new();
    growing.append(&SitesEncoder::encode(ImageId(2), &[site(5)], &mut compressor).unwrap(), 0);
    let bytes = growing.read(&figures(2, 100)).unwrap();
    let recording = Recording::open(&bytes).unwrap();
    assert_eq!(recording.image_counts(ImageId(2)).unwrap().allocations, Blocks(9));
    assert_eq!(recording.sites(ImageId(2)).rows.len(), 1);
    // One that had no sites at the moment of the figures has none.
    let mut writer = RecordingWriter::new();
    let nothing = [IMAGE, ImageId(2)].map(|image| ImageCounts { image, counts: Counts::default() });
    let nothing = encode_records(&nothing.map(Record::ImageCounts), &mut compressor).unwrap();
    nothing.iter().for_each(|chunk| writer.push(chunk));
    writer.finish(&Footer { time: Time(3), ..Footer::default() }, &mut compressor);
    let bytes = growing.read(writer.pending()).unwrap();
    assert_eq!(Recording::open(&bytes).unwrap().sites(ImageId(2)).rows, []);
}

/// The first chunk of a file may be written after its name is known.
#[test]
fn a_file_that_has_nothing_yet_is_no_complete_recording() {
    let mut growing = Growing::new();
    let session = Session { samples: true, ..Session::default() };
    growing.writer = RecordingWriter::of_sample();
    growing.append(&[], 0);
    let mut figures_of_sample = RecordingWriter::of_sample();
    figures_of_sample.finish(&Footer::default(), &mut Compressor::new());
    let of = |bytes: &[u8]| Recording::open(bytes).unwrap().session().unwrap().samples;
    assert!(!of(&growing.read(figures_of_sample.pending()).unwrap()));
    growing.append(&encode_records(&[Record::Session(session)], &mut Compressor::new()).unwrap(), 0);
    let bytes = growing.read(figures_of_sample.pending()).unwrap();
    assert!(of(&bytes) && Recording::open(&bytes).unwrap().is_sample());
}

#[test]
fn what_cannot_be_read_is_said_with_its_place() {
    let mut growing = Growing::new();
    let error = growing.read(&figures(1, 1)).unwrap_err();
    assert!(matches!(&error, LiveError::File { path, .. } if *path == growing.path()), "{error:?}");
    growing.append(&chunks(&start(), 10), 0);
    let mut bytes = fs::read(growing.path()).unwrap();
    bytes[20] ^= 1;
    bytes.extend([0; 64]);
    fs::write(growing.path(), &bytes).unwrap();
    match growing.read(&figures(1, 1)).unwrap_err() {
        LiveError::Damaged { source: RecordingError::Damaged(damage), .. } => assert_eq!(damage.offset, FIRST_CHUNK),
        other => panic!("{other:?}"),
    }
    // A hostile answer.
    let mut growing = Growing::new();
    growing.append(&chunks(&start(), 10), 0);
    assert!(matches!(growing.read(b"no recording").unwrap_err(), LiveError::Damaged { .. }));
    let directory = growing.directory.path().to_owned();
    let error = FollowedFile::follow(None, &directory, std::process::id()).unwrap_err();
    assert!(matches!(error, LiveError::File { .. }), "{error:?}");
}
