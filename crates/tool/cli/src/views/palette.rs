//! The colours of a flame graph: warm ones for the program's own code, cool ones for libraries, one
//! hue for each area.

use inferno::flamegraph::color::{Color, PaletteMap};

/// The kind of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// The program's own function.
    Own,
    /// A function of a library.
    Other,
    /// Functions that are folded into one box.
    Folded,
    /// A scope, a heap or a type.
    Declared,
}

/// Returns the colours of boxes by name. Each box has a name, an area, which has one hue, and a
/// kind.
pub(crate) fn of<'b>(boxes: impl Iterator<Item = (&'b str, &'b str, Paint)>) -> PaletteMap {
    let mut colors = PaletteMap::default();
    // The box below all others.
    for root in ["", "all"] {
        colors.insert(root, color(root, root, Paint::Folded));
    }
    for (name, area, paint) in boxes {
        if colors.get(name).is_none() {
            colors.insert(name, color(name, area, paint));
        }
    }
    colors
}

/// Returns the crate or the namespace of a function, if its name has one.
pub(crate) fn area(function: &str) -> Option<&str> {
    let name = function.trim_start_matches(['<', '&', '*']);
    let (area, _) = name.split_once("::")?;
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    (!area.is_empty() && area.chars().all(is_name)).then_some(area)
}

fn color(name: &str, area: &str, paint: Paint) -> Color {
    // Adjacent boxes of one area differ in lightness.
    let light = 0.82 + 0.16 * part(name);
    match paint {
        Paint::Own => hsv(8.0 + 44.0 * part(area), 0.62, light),
        Paint::Other => hsv(95.0 + 165.0 * part(area), 0.38, light),
        Paint::Folded => hsv(0.0, 0.0, 0.82),
        Paint::Declared => hsv(275.0 + 50.0 * part(area), 0.35, light),
    }
}

/// Hashes a text to a number from 0 to 1 (FNV-1a).
fn part(text: &str) -> f64 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    f64::from(hash ^ hash >> 15) / f64::from(u32::MAX)
}

/// Returns a colour by its hue, in degrees, its saturation and its value.
fn hsv(hue: f64, saturation: f64, value: f64) -> Color {
    let channel = |shift: f64| {
        let sector = (shift + hue / 60.0) % 6.0;
        let level = value - value * saturation * sector.min(4.0 - sector).clamp(0.0, 1.0);
        (level * 255.0).round() as u8
    };
    Color { r: channel(5.0), g: channel(3.0), b: channel(1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_crates_and_namespaces() {
        for (function, expected) in [
            ("tokio::runtime::task::raw::poll", Some("tokio")),
            ("<alloc::vec::Vec<T> as core::clone::Clone>::clone", Some("alloc")),
            ("v8::internal::Heap::Allocate", Some("v8")),
            ("xmalloc", None),
            ("(anonymous namespace)::parse", None),
        ] {
            assert_eq!(area(function), expected, "{function}");
        }
    }

    #[test]
    fn own_code_is_warm_and_libraries_are_cool() {
        for area in ["server", "tokio", "libc.so.6", "std", "x", "y"] {
            let (own, other) = (color("f", area, Paint::Own), color("f", area, Paint::Other));
            assert!(own.r > own.b && own.r >= own.g, "{area}: {own:?}");
            assert!(other.g.max(other.b) > other.r, "{area}: {other:?}");
        }
        let grey = color("f", "std", Paint::Folded);
        assert!(grey.r == grey.g && grey.g == grey.b);
        assert_eq!(hsv(120.0, 1.0, 1.0), Color { r: 0, g: 255, b: 0 });
    }
}
