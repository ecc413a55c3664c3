//! CPython: the functions of the interpreter that allocate, by their names.
//!
//! Python programs allocate objects of the interpreter, which is in C. Its functions return
//! `PyObject *` for every type, and distributions leave only the names that extensions need. So the
//! type of a block is inferred from the name of the function that allocates, as it is for
//! containers in Rust and C++. Nothing proves it: these answers are probable.

use crate::language::Language;
use crate::places::{InnermostPlaces, Places};
use crate::site_type::{Confidence, Evidence, SiteType, SizeCheck};
use crate::sizes::{EachSize, SiteSizes};
use crate::type_name::TypeName;

/// The maximum number of functions without a name that are skipped before the first that has one.
const UNNAMED_MAX: usize = 3;
/// The maximum size of an object of fixed size: larger ones bypass pymalloc.
const OBJECT_MAX: u64 = 512;
/// The sizes of the parts of the map that pymalloc keeps of its arenas, with 64-bit addresses.
const ARENA_MAPS: [u64; 2] = [1 << 17, 1 << 18];
const ARENA_MAP: ObjectKind = Memory("pymalloc arena map");

/// The kind of a block, according to the function that asks for it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ObjectKind {
    /// An object of one size.
    Object(&'static str),
    /// An object of variable size.
    Varying(&'static str),
    /// Elements of this size, and the container that they belong to.
    Several(&'static str, u64, &'static str),
    /// A part of a container that varies in size.
    Part(&'static str, &'static str),
    /// Memory of an allocator.
    Memory(&'static str),
    /// The function does not tell.
    Nothing,
}
use ObjectKind::{Memory, Nothing, Object, Part, Several, Varying};

const ITEMS: ObjectKind = Several("PyObject*", 8, "list");
const KEYS: ObjectKind = Part("PyDictKeysObject", "dict");
const TEXT: ObjectKind = Varying("PyUnicodeObject");
const BYTES: ObjectKind = Varying("PyBytesObject");
const INTEGER: ObjectKind = Varying("PyLongObject");

/// Functions, by name or (with `*`) its beginning: what they ask the allocator for, and what they
/// ask the allocator of objects for. The first rule that matches applies.
const RULES: &[(&[&str], ObjectKind, ObjectKind)] = &[
    // pymalloc itself. Its arenas come from malloc only if there is no mmap.
    (&["_PyObject_ArenaMalloc"], Memory("pymalloc arena"), Nothing),
    (&["arena_map_get", "arena_map_mark_used"], ARENA_MAP, Nothing),
    (&["new_arena", "allocate_from_new_pool"], Several("arena_object", 48, "pymalloc"), Nothing),
    (&["block_new", "block_alloc", "_PyArena_*", "PyArena_*"], Memory("PyArena block"), Nothing),
    // Containers.
    (&["PyList_New", "list_new_prealloc"], ITEMS, Object("PyListObject")),
    (&["PyList_AsTuple"], Varying("PyTupleObject"), Varying("PyTupleObject")),
    (
        &[
            "list_resize",
            "list_preallocate_exact",
            "list_sort_impl",
            "PyList_*",
            "_PyList_*",
            "list_extend",
            "ins1",
            "PySequence_List",
        ],
        ITEMS,
        Object("PyListObject"),
    ),
    (
        &["PyTuple_New", "PyTuple_Pack", "tuple_alloc", "_PyTuple_*", "PyTuple_GetSlice", "PySequence_Tuple"],
        Varying("PyTupleObject"),
        Varying("PyTupleObject"),
    ),
    (&["new_values"], Several("PyObject*", 8, "dict"), Nothing),
    // These make a text from the name.
    (&["PyDict_GetItemString", "PyDict_SetItemString", "PyDict_DelItemString"], Nothing, Nothing),
    (&["PyDictProxy_New"], Object("mappingproxyobject"), Object("mappingproxyobject")),
    (&["_PyDictView_New"], Object("_PyDictViewObject"), Object("_PyDictViewObject")),
    (
        &[
            "new_keys_object",
            "clone_combined_dict_keys",
            "dictresize",
            "insertion_resize",
            "insertdict",
            "insert_to_emptydict",
            "new_dict",
            "dict_new",
            "new_dict_with_shared_keys",
            "dict_new_presized",
            "dict_merge",
            "PyDict_*",
            "_PyDict_*",
        ],
        KEYS,
        Object("PyDictObject"),
    ),
    (&["_odict_resize", "_odict_add_new_node"], Part("_ODictNode", "OrderedDict"), Nothing),
    (
        &[
            "set_table_resize",
            "set_add_entry",
            "PySet_Add",
            "_PySet_Update",
            "make_new_set",
            "PySet_New",
            "PyFrozenSet_New",
        ],
        Several("setentry", 16, "set"),
        Object("PySetObject"),
    ),
    // Texts and bytes. The function that makes the result of a conversion is named after its type.
    (&["unicode_fill_utf8", "PyUnicode_AsUTF8", "PyUnicode_AsUTF8AndSize"], Several("char", 1, "str"), Nothing),
    (
        &["PyUnicode_AsWideCharString", "PyUnicode_AsUnicode", "PyUnicode_AsUnicodeAndSize"],
        Several("wchar_t", 4, "str"),
        Nothing,
    ),
    (&["PyUnicode_As*", "_PyUnicode_As*", "PyUnicode_Encode*", "_PyUnicode_Encode*"], Nothing, Nothing),
    (&["PyUnicodeDecodeError_*", "PyUnicodeEncodeError_*"], Nothing, Nothing),
    (&["PyUnicode_*", "_PyUnicode_*", "_PyUnicodeWriter_*", "resize_compact", "unicode_resize"], TEXT, TEXT),
    (&["PyBytes_AsString*"], Nothing, Nothing),
    (&["PyBytes_*", "_PyBytes_*", "_PyBytesWriter_*"], BYTES, BYTES),
    (&["PyByteArray_*"], Several("char", 1, "bytearray"), Object("PyByteArrayObject")),
    // Numbers.
    (
        &["_PyLong_New", "_PyLong_Copy", "_PyLong_From*", "PyLong_From*", "x_add", "x_sub", "_PyLong_Add"],
        INTEGER,
        INTEGER,
    ),
    (&["PyFloat_From*"], Object("PyFloatObject"), Object("PyFloatObject")),
    (&["PyComplex_From*"], Object("PyComplexObject"), Object("PyComplexObject")),
    // Code, and objects made while it runs.
    (&["_PyCode_New", "PyCode_New", "PyCode_NewWithPosOnlyArgs"], Varying("PyCodeObject"), Varying("PyCodeObject")),
    (
        &["PyFunction_New", "PyFunction_NewWithQualName", "_PyFunction_FromConstructor"],
        Object("PyFunctionObject"),
        Object("PyFunctionObject"),
    ),
    (&["PyCFunction_New*", "PyCMethod_New"], Object("PyCFunctionObject"), Object("PyCFunctionObject")),
    (&["PyMethod_New"], Object("PyMethodObject"), Object("PyMethodObject")),
    (&["PyCell_New"], Object("PyCellObject"), Object("PyCellObject")),
    (&["PyGen_New*", "make_gen", "gen_new_with_qualname"], Varying("PyGenObject"), Varying("PyGenObject")),
    (&["PyFrame_New", "_PyFrame_New_NoTrack"], Varying("PyFrameObject"), Varying("PyFrameObject")),
    (&["_PyTraceBack_FromFrame", "tb_create_raw"], Object("PyTracebackObject"), Object("PyTracebackObject")),
    (&["PySlice_New"], Object("PySliceObject"), Object("PySliceObject")),
    (&["PyWeakref_New*", "new_weakref"], Object("PyWeakReference"), Object("PyWeakReference")),
    (&["PyCapsule_New"], Object("PyCapsule"), Object("PyCapsule")),
    (&["PyModule_New*", "new_module_notrack"], Nothing, Object("PyModuleObject")),
    (&["PyDescr_NewMethod", "PyDescr_NewClassMethod"], Nothing, Object("PyMethodDescrObject")),
    (&["PyDescr_NewMember"], Nothing, Object("PyMemberDescrObject")),
    (&["PyDescr_NewGetSet"], Nothing, Object("PyGetSetDescrObject")),
    (&["PyDescr_NewWrapper"], Nothing, Object("PyWrapperDescrObject")),
    (
        &["type_new", "type_new_alloc", "type_new_impl", "PyType_FromSpec*", "PyType_FromModuleAndSpec"],
        Nothing,
        Varying("PyHeapTypeObject"),
    ),
    (&["PyStructSequence_New"], Nothing, Varying("PyStructSequence")),
    (&["type_new_set_doc"], Several("char", 1, "str"), Nothing),
    (&["PyInterpreterState_New"], Memory("PyInterpreterState"), Nothing),
    (&["PyThreadState_New", "new_threadstate"], Memory("PyThreadState"), Nothing),
];

/// Functions that only hand out memory.
const ALLOCATORS: [&str; 9] = [
    "PyMem_*",
    "_PyMem_*",
    "PyObject_Malloc",
    "PyObject_Calloc",
    "PyObject_Realloc",
    "_PyObject_Malloc",
    "_PyObject_Calloc",
    "_PyObject_Realloc",
    "pymalloc_*",
];

/// Functions that hand out objects of a given type.
const OF_OBJECTS: [&str; 13] = [
    "gc_alloc",
    "_PyObject_GC_*",
    "_PyObject_New",
    "_PyObject_NewVar",
    "_PyObject_Init",
    "_PyType_AllocNoTrack",
    "_PyType_NewManagedObject",
    "PyType_GenericAlloc",
    "PyType_GenericNew",
    "PyObject_GC_*",
    "descr_new",
    "_PyType_Alloc*",
    "type_new_init",
];

/// Returns the type of the blocks that a stack allocates if a function of CPython tells it; `None`
/// also if the allocating code is not CPython's.
pub(crate) fn site_type(places: Places<'_>, innermost: InnermostPlaces, sizes: SiteSizes) -> Option<SiteType> {
    if innermost.in_libc > 0 || !is_python(places) {
        return None;
    }
    let (mut unnamed, mut of_objects) = (0, None);
    for (place, frame) in places.iter().enumerate().flat_map(|(place, frames)| frames.iter().map(move |f| (place, f))) {
        let name = &*frame.name;
        if name.is_empty() {
            unnamed += 1;
            // The function may have asked for an object of any type.
            if of_objects.is_some() || unnamed > UNNAMED_MAX {
                break;
            }
            continue;
        }
        if frame.is_allocator() || is_one_of(name, &ALLOCATORS) {
            continue;
        }
        if frame.language != Language::C {
            break;
        }
        if is_one_of(name, &OF_OBJECTS) {
            of_objects = of_objects.or(Some((place, name)));
            continue;
        }
        let rule = RULES.iter().find(|(functions, ..)| is_one_of(name, functions));
        let known = rule.map_or(Nothing, |&(_, asked, object)| if of_objects.is_some() { object } else { asked });
        if known == Nothing {
            break;
        }
        let known = if unnamed > 0 && is_arena_map(known, sizes) { ARENA_MAP } else { known };
        return answer(known, (place, name), sizes);
    }
    let object = if unnamed > 0 && is_arena_map(Varying("PyObject"), sizes) { ARENA_MAP } else { Varying("PyObject") };
    answer(object, of_objects?, sizes)
}

/// True if these blocks are the map of pymalloc's arenas, by their sizes. The map grows when some
/// object is allocated. Tables of containers may have the same sizes.
fn is_arena_map(known: ObjectKind, sizes: SiteSizes) -> bool {
    let is_table = matches!(known, Several(..) | Part(..));
    let are_maps = |each: EachSize| ARENA_MAPS.contains(&each.least) && ARENA_MAPS.contains(&each.most);
    !is_table && sizes.each().is_some_and(are_maps)
}

/// True if an interpreter is in the stack. Other programs may have a `list_resize`, too.
fn is_python(places: Places<'_>) -> bool {
    let mut frames = places.iter().flat_map(|frames| frames.iter());
    frames.any(|frame| is_one_of(&frame.name, &["_PyEval_*", "PyEval_*", "Py_*", "_Py_*", "PyObject_*", "_PyObject_*"]))
}

fn is_one_of(name: &str, functions: &[&str]) -> bool {
    functions.iter().any(|function| match function.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *function,
    })
}

/// Returns the answer, unless sizes contradict it.
fn answer(is: ObjectKind, (place, function): (usize, &str), sizes: SiteSizes) -> Option<SiteType> {
    let mut found = SiteType {
        confidence: Confidence::Probable,
        evidence: Evidence::CFunction(function.into()),
        module: Some(place),
        ..SiteType::unknown()
    };
    let block = match is {
        Nothing => return None,
        Object(name) => {
            let each = sizes.each();
            if each.is_some_and(|each| each.least != each.most || each.most > OBJECT_MAX) {
                return None;
            }
            TypeName::plain(name)
        }
        Varying(name) | Memory(name) => TypeName::plain(name),
        Part(name, container) => {
            found.container = Some(container.into());
            TypeName::plain(name)
        }
        Several(name, size, container) => {
            let element = TypeName::plain(name);
            match sizes.are_several(size, 0) {
                Some(true) => found.size_check = SizeCheck::Consistent,
                Some(false) => return None,
                None => {}
            }
            found.container = Some(container.into());
            found.size = Some(size);
            found.element = Some(element.clone());
            element.buffer()
        }
    };
    found.block = Some(block);
    Some(found)
}
