use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::graph::{GraphBuilder, NodeData, NodeId};

fn graph() -> Graph {
    let mut builder = GraphBuilder::new();
    let name = builder.intern("root").unwrap();
    builder.add_node(NodeData::new(NodeId(1), name, Some(3))).unwrap();
    builder.finish().unwrap()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn formats_are_known_by_their_contents() {
    let firefox = fxsnapshot::write(&graph(), Vec::new()).unwrap();
    let v8 = heapsnapshot::write(&graph(), Vec::new()).unwrap();
    let v8_packed = packed(&v8);
    for (file, format) in [(&firefox, Format::Firefox), (&v8, Format::V8), (&v8_packed, Format::V8)] {
        assert_eq!(detect(file), Some(format));
        assert_eq!(read(file.as_slice()).unwrap().node_count(), 1);
    }
    let profile = br#"{"head":{"callFrame":{"functionName":"(root)"},"selfSize":0,"children":[]},"samples":[]}"#;
    assert_eq!(detect(profile), Some(Format::V8Profile));
    assert!(matches!(read(profile.as_slice()), Err(ReadError::Profile)));
    // Profiles of pprof begin with a kind of samples, whose length may look like the key of a time.
    let pprof = [0x0a, 0x08, 0x08, 0x80, 0x80, 0x01, 0x10, 0x81, 0x80, 0x01, 0x0a, 0x04];
    for other in [&pprof[..], &[0, 1, 2], &[2, 8, 5], &[2, 8, 5, 9, 0x0a], &[3, 8, 5, 9, 0x18, 1, 1]] {
        assert_eq!(detect(&packed(other)), None, "{other:?}");
    }
    for firefox in [&[2, 8, 5, 9, 0x18][..], &[0, 2, 8, 1]] {
        assert_eq!(detect(&packed(firefox)), Some(Format::Firefox), "{firefox:?}");
    }
    for other in [&b""[..], b"{}", b"[1]", &packed(b"text"), &[0x1f, 0x8b, 8, 0]] {
        assert_eq!(detect(other), None, "{other:?}");
        assert!(matches!(read(other), Err(ReadError::Malformed { offset: 0, .. })));
    }
}
