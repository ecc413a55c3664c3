//! The files of the page, compiled in.

/// A file of the page.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its path below the page's address; empty for the page itself.
    path: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'static [u8],
}

const ASSETS: &[Asset] = &[
    Asset { path: "", media_type: "text/html; charset=utf-8", bytes: include_bytes!("assets/index.html") },
    Asset { path: "app.js", media_type: "text/javascript; charset=utf-8", bytes: include_bytes!("assets/app.js") },
    Asset { path: "app.css", media_type: "text/css; charset=utf-8", bytes: include_bytes!("assets/app.css") },
    Asset {
        path: "worker.js",
        media_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("assets/worker.js"),
    },
];

/// Returns the file at a path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}
