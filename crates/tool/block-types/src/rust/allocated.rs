//! The blocks that functions of Rust's library, and of libraries of containers, allocate.

use super::name::Type;
use super::parsed::{Details, View, is_allocator};
use crate::frame::TypedFrame;

/// The way in which an allocation consists of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A single value: `Box`, and all nodes.
    One,
    /// Several values: `Vec`, `VecDeque`, strings.
    Buffer,
    /// Several values behind a length and a capacity.
    Headed,
    /// One value or a slice behind two counters, as in `Arc` and `Rc`, with the name of the counted
    /// struct.
    Counted(&'static str, Sliced),
    /// A hash table of values.
    Table,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sliced {
    Yes,
    No,
}

impl Shape {
    /// Returns a number that two shapes share if one may be part of making the other.
    pub(super) fn group(self) -> u8 {
        match self {
            Self::One | Self::Counted(..) => 0,
            Self::Buffer | Self::Headed => 1,
            Self::Table => 2,
        }
    }
}

/// The shape of a block, the type that it consists of, and the size of that.
pub(super) type Allocated = (Shape, Type, Option<u64>);

/// Returns what a function of a library allocates.
pub(super) fn allocates(view: &View, frame: &TypedFrame) -> Option<Allocated> {
    /// The modules with such functions; they are compared before the name is parsed.
    const ALLOCATING: [&str; 9] = [
        "alloc",
        "hashbrown",
        "std",
        "smallvec",
        "allocator_api2",
        "thin_vec",
        "bumpalo",
        "crossbeam_channel",
        "tokio",
    ];
    if !ALLOCATING.iter().any(|module| view.is_in(module)) {
        return None;
    }
    let details = view.details(frame);
    // Code inlined for a callee tells nothing about itself.
    if details.function.starts_with('{') {
        return None;
    }
    let function = LibraryFunction { view, details };
    if view.is_in("alloc") {
        function.of_alloc()
    } else if view.is_in("hashbrown") || view.is_in("std::collections::hash") {
        function.of_hash_table()
    } else if view.is_in("std") {
        function.of_std()
    } else {
        function.of_other_crate()
    }
}

/// A function that is defined in a library.
struct LibraryFunction<'v> {
    view: &'v View,
    details: &'v Details,
}

impl LibraryFunction<'_> {
    fn of_alloc(&self) -> Option<Allocated> {
        let Self { view, details } = self;
        if view.is_in("alloc::raw_vec") {
            return self.buffer_of_argument();
        }
        if view.is_in("alloc::vec") {
            let (of, size) = match &*details.function {
                // `<I, T>`
                "from_iter_in_place" => self.argument("T", details.arguments.len().checked_sub(1)?),
                _ => self.within("Vec").or_else(|| self.argument("T", 0)),
            }?;
            return Some((Shape::Buffer, of, size));
        }
        if view.is_in("alloc::slice") || view.is_in("alloc::collections::vec_deque") {
            // The elements of the joined values are not those of the result.
            if matches!(&*details.function, "concat" | "join") {
                return None;
            }
            let (of, size) = match &details.own {
                Some(Type::Slice(element, _)) => Some(((**element).clone(), details.size_of(element))),
                _ => self.within("VecDeque").or_else(|| self.argument("T", 0)),
            }?;
            return Some((Shape::Buffer, of, size));
        }
        if view.is_in("alloc::boxed") {
            return self.of_box();
        }
        for (module, owner, inner) in
            [("alloc::sync", "Arc", "alloc::sync::ArcInner"), ("alloc::rc", "Rc", "alloc::rc::RcInner")]
        {
            if view.is_in(module) {
                return self.of_counted(owner, inner);
            }
        }
        let of_bytes = ["alloc::string", "alloc::fmt", "alloc::str", "alloc::ffi::c_str", "alloc::bstr"];
        of_bytes.iter().any(|module| view.is_in(module)).then(bytes)
    }

    fn of_box(&self) -> Option<Allocated> {
        let Self { details, .. } = self;
        let (of, size) = self.within("Box").or_else(|| self.argument("T", 0))?;
        Some(match of {
            Type::Slice(element, None) => {
                let size = details.size_of(&element);
                (Shape::Buffer, *element, size)
            }
            of if details.function.ends_with("_slice") || details.function.ends_with("_slice_in") => {
                (Shape::Buffer, of, size)
            }
            of if is_text(&of) => bytes(),
            Type::Bounds(..) => return None,
            of => (Shape::One, of, size),
        })
    }

    /// Returns what a function of `Arc` or `Rc` allocates: `inner`, which has the counters.
    fn of_counted(&self, owner: &str, inner: &'static str) -> Option<Allocated> {
        let Self { details, .. } = self;
        let (of, size) = self.within(owner).or_else(|| self.argument("T", 0))?;
        match of {
            Type::Slice(element, None) => {
                let size = details.size_of(&element);
                Some((Shape::Counted(inner, Sliced::Yes), *element, size))
            }
            Type::Bounds(..) => None,
            of if is_text(&of) => Some((Shape::Counted(inner, Sliced::Yes), Type::parse("u8"), Some(1))),
            of if details.function.contains("slice") || details.function.contains("from_iter_exact") => {
                Some((Shape::Counted(inner, Sliced::Yes), of, size))
            }
            // A layout has no type.
            _ if details.function.contains("layout") => None,
            of => Some((Shape::Counted(inner, Sliced::No), of, size)),
        }
    }

    fn of_hash_table(&self) -> Option<Allocated> {
        let Self { view, .. } = self;
        if view.is_in("hashbrown::raw") {
            let (of, size) = self.within("RawTable").or_else(|| self.argument("T", 0))?;
            return Some((Shape::Table, of, size));
        }
        let is_map = ["hashbrown::map", "hashbrown::rustc_entry", "std::collections::hash::map"];
        if is_map.iter().any(|module| view.is_in(module)) {
            let ((key, _), (value, _)) = (self.argument("K", 0)?, self.argument("V", 1)?);
            return Some((Shape::Table, Type::Tuple(vec![key, value]), None));
        }
        if view.is_in("hashbrown::set") || view.is_in("std::collections::hash::set") {
            let (key, size) = self.argument("T", 0)?;
            return Some((Shape::Table, Type::Tuple(vec![key, Type::Tuple(Vec::new())]), size));
        }
        None
    }

    fn of_std(&self) -> Option<Allocated> {
        let of_bytes = ["std::path", "std::ffi::os_str", "std::sys::os_str"];
        of_bytes.iter().any(|module| self.view.is_in(module)).then(bytes)
    }

    fn of_other_crate(&self) -> Option<Allocated> {
        let Self { view, details } = self;
        if view.is_in("allocator_api2::stable::raw_vec") {
            return self.buffer_of_argument();
        }
        if view.is_in("allocator_api2::stable::vec") || view.is_in("thin_vec") {
            let (of, size) = self.within("Vec").or_else(|| self.within("ThinVec")).or_else(|| self.argument("T", 0))?;
            let shape = if view.is_in("thin_vec") { Shape::Headed } else { Shape::Buffer };
            return Some((shape, of, size));
        }
        // An arena holds any types.
        if view.is_in("bumpalo") {
            return Some(bytes());
        }
        // Channels ask the allocator for blocks of messages.
        let is_block = ["crossbeam_channel::flavors::list", "tokio::sync::mpsc::block"];
        if is_block.iter().any(|module| view.is_in(module)) && details.function == "new" {
            let own = details.own.clone().filter(|own| own.last().is_some_and(|last| last.name == "Block"));
            let module = is_block.iter().find(|module| view.is_in(module))?;
            let named = || Some(Type::parse(&format!("{module}::Block<{}>", self.argument("T", 0)?.0.spelled(true))));
            return Some((Shape::One, own.filter(|own| !own.arguments().is_empty()).or_else(named)?, None));
        }
        if view.is_in("smallvec") {
            let (of, size) = self.argument("A", 0)?;
            return Some(match of {
                Type::Slice(element, Some(_)) => (Shape::Buffer, *element, None),
                of => (Shape::Buffer, of, size),
            });
        }
        None
    }

    fn buffer_of_argument(&self) -> Option<Allocated> {
        let (of, size) = self.argument("T", 0)?;
        Some((Shape::Buffer, of, size))
    }

    /// Returns the argument of this name or at this position, and its size.
    fn argument(&self, name: &str, position: usize) -> Option<(Type, Option<u64>)> {
        self.details.argument(name, position).map(|found| (found.of.clone(), found.size))
    }

    /// Returns the argument of `Self`, and its size, if that is this type.
    fn within(&self, wanted: &str) -> Option<(Type, Option<u64>)> {
        let own = self.details.own.as_ref().filter(|own| own.path().ends_with(wanted))?;
        let inner = own.arguments().iter().find(|argument| !is_allocator(argument) && argument.path() != "_")?;
        Some((inner.clone(), self.details.size_of(inner)))
    }
}

fn bytes() -> Allocated {
    (Shape::Buffer, Type::parse("u8"), Some(1))
}

/// True for types of a variable number of bytes.
fn is_text(of: &Type) -> bool {
    matches!(&*of.path(), "str" | "std::path::Path" | "std::ffi::os_str::OsStr" | "core::ffi::c_str::CStr")
}
