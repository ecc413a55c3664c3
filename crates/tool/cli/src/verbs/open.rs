//! `heapledger open`: a page about files, in a browser.

#[cfg(feature = "viewer")]
mod call_tree;
#[cfg(feature = "viewer")]
mod kind;
#[cfg(feature = "viewer")]
mod save;
#[cfg(feature = "viewer")]
mod serve;
#[cfg(feature = "viewer")]
pub(crate) mod session;
#[cfg(feature = "viewer")]
mod words;

use crate::args::Open;
use crate::error::Result;
use crate::output::Output;

/// Serves the page until the command is interrupted, or saves it.
pub(crate) fn run(arguments: &Open, out: &mut Output) -> Result<()> {
    #[cfg(feature = "viewer")]
    return serve::run(arguments, out);
    #[cfg(not(feature = "viewer"))]
    {
        use crate::error::Failure;
        use crate::exit::Exit;
        let _ = (arguments, out);
        Err(Failure::new(Exit::Usage, "this heapledger was built without the page")
            .hint("cargo install --locked heapledger-cli --features viewer"))
    }
}
