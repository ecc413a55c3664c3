use super::*;

#[test]
fn a_file_sent_as_text_is_named_as_such() {
    let header = file_header(0);
    let dos: Vec<u8> = header.iter().flat_map(|&b| if b == b'\n' { vec![b'\r', b'\n'] } else { vec![b] }).collect();
    let unix: Vec<u8> = header.iter().copied().filter(|&b| b != b'\r').collect();
    let seven_bits: Vec<u8> = header.iter().map(|&b| b & 0x7f).collect();
    for damaged in [dos, unix, seven_bits] {
        assert_eq!(read_file_header(&damaged), Err(RecordingError::TransferredAsText));
    }
    assert_eq!(read_file_header(b"hello"), Err(RecordingError::NotARecording));
    assert_eq!(read_file_header(&header[..15]), Err(RecordingError::HeaderDamaged));
}

#[test]
fn newer_versions_and_required_flags_are_refused() {
    let with = |at: usize, value: u8| {
        let mut header = file_header(0);
        header[at] = value;
        let crc = crc32fast::hash(&header[..12]);
        header[12..].copy_from_slice(&crc.to_le_bytes());
        read_file_header(&header)
    };
    for major in [VERSION_MAJOR - 1, VERSION_MAJOR + 1] {
        assert_eq!(with(8, major), Err(RecordingError::UnsupportedVersion { major, minor: VERSION_MINOR }));
    }
    assert_eq!(with(9, 200), Ok((VERSION_MAJOR, 200)));
    assert_eq!(with(10, 1), Ok((VERSION_MAJOR, VERSION_MINOR)));
    assert_eq!(with(11, 1), Ok((VERSION_MAJOR, VERSION_MINOR)));
    assert_eq!(with(11, 2), Err(RecordingError::UnsupportedFlags { flags: 0x200 }));
}

#[test]
fn a_decompression_bomb_stops_at_the_stated_length() {
    let bomb = zstd::bulk::compress(&vec![0; CHUNK_RAW_MAX], 1).unwrap();
    let bytes = frame_bytes(ChunkKind::Metadata, CODEC_ZSTD, &[], &bomb, bomb.len() + 1);
    let frame = ChunkFrame::parse(&bytes).unwrap();
    assert_eq!(Unpacker::default().unpack(&frame), Err(Reason::Decompress));
}

#[test]
fn a_chunk_beyond_the_limits_is_no_chunk() {
    for (head, stored, raw) in [(5000, 10, 10), (0, 11, 10), (0, 8, CHUNK_RAW_MAX + 1)] {
        let bytes = frame_bytes(ChunkKind::Metadata, CODEC_RAW, &vec![0; head], &vec![0; stored], raw);
        assert_eq!(ChunkFrame::parse(&bytes).err(), Some(NoFrame::Damaged));
    }
}
