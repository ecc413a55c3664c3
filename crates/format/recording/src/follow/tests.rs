use super::*;
use crate::{Compressor, Record, Recording, RecordingWriter, Session, encode_records};

fn file() -> Vec<u8> {
    let mut compressor = Compressor::new();
    let mut writer = RecordingWriter::new();
    for options in ["one", "two", "three"] {
        let session = Session { options: options.to_owned(), ..Session::default() };
        encode_records(&[Record::Session(session)], &mut compressor).unwrap().iter().for_each(|it| writer.push(it));
    }
    writer.finish(&Default::default(), &mut compressor);
    writer.pending().to_vec()
}

/// Goes through a file by the headers of its chunks. Returns the chunks and where it stopped.
fn follow(file: &[u8]) -> (Vec<EncodedChunk>, usize) {
    let (mut chunks, mut at) = (Vec::new(), FIRST_CHUNK as usize);
    while let Some(header) = file.get(at..).and_then(|rest| rest.first_chunk())
        && let Some(ChunkHeader { kind, length }) = ChunkHeader::parse(header)
        && let Some(bytes) = file.get(at..at + length as usize)
    {
        let chunk = EncodedChunk::from_bytes(bytes.to_vec(), at as u64).unwrap();
        assert_eq!(chunk.kind(), kind);
        chunks.push(chunk);
        at += length as usize;
    }
    (chunks, at)
}

#[test]
fn the_chunks_of_a_file_are_those_of_its_index() {
    let file = file();
    let recording = Recording::open(&file).unwrap();
    let (chunks, end) = follow(&file);
    let listed: Vec<_> = recording.chunks().iter().map(|chunk| (chunk.kind, chunk.head)).collect();
    let found: Vec<_> = chunks.iter().map(|chunk| (chunk.kind(), *chunk.head())).collect();
    assert_eq!(found[..3], listed);
    assert_eq!(found[3..].iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [ChunkKind::Index, ChunkKind::Footer]);
    // Only the trailer is left, which is not a chunk.
    assert_eq!(end, file.len() - 32);
}

#[test]
fn a_chunk_that_is_being_written_is_left_for_later() {
    let file = file();
    let (all, _) = follow(&file);
    for end in 0..file.len() {
        let (chunks, at) = follow(&file[..end]);
        assert!(chunks[..] == all[..chunks.len()] && at <= end.max(16), "{end}");
    }
}

#[test]
fn damaged_chunks_are_refused() {
    let file = file();
    let first = FIRST_CHUNK as usize;
    let header = file[first..].first_chunk().unwrap();
    let length = ChunkHeader::parse(header).unwrap().length as usize;
    let chunk = &file[first..first + length];
    for at in 0..length {
        let mut damaged = chunk.to_vec();
        damaged[at] ^= 0x10;
        let error = EncodedChunk::from_bytes(damaged, 16).unwrap_err().to_string();
        assert!(error.contains("16"), "{at}: {error}");
    }
    assert!(EncodedChunk::from_bytes(chunk[..length - 8].to_vec(), 16).is_err());
    assert!(EncodedChunk::from_bytes([chunk, &[0; 8]].concat(), 16).is_err());
}
