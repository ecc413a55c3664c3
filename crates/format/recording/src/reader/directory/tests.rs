use super::*;
use crate::reader::Recording;

/// If each byte were looked at again for each of the headers, this would take hours.
#[test]
fn a_file_full_of_misleading_headers_is_read_in_linear_time() {
    let mut file = frame::file_header(0).to_vec();
    // Each header claims some megabytes, which fail the checksum and do not end where another
    // chunk begins.
    let contents = vec![0; 8 << 20];
    let header = |at: usize| {
        let length = (4 << 20) + 32 * (at % 1000) + 8;
        frame::unchecked_chunk(ChunkKind::Events, &[], &contents[..length])[..frame::CHUNK_HEADER].to_vec()
    };
    let headers: Vec<Vec<u8>> = (0..20).map(header).collect();
    for at in 0..600_000 {
        file.extend_from_slice(&headers[at % headers.len()]);
    }
    let recording = Recording::open(&file).unwrap();
    assert_eq!(recording.chunks(), []);
    assert!(recording.damage().iter().any(|damage| damage.reason == Reason::Checksum));
}
