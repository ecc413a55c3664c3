// Stamps every `new` below this line with its type, file and line: `new T(…)` becomes
// `heapledger::at(FILE, LINE) * new T(…)`, which stamps the block and is the same pointer. Opt-in:
// include it after all other headers, in source files; C++11 on.
//
// The following still compiles, with the same meaning: arrays, `new (std::nothrow) T`, placement
// new, `new auto`, classes with operators of their own, local classes, templates,
// `std::unique_ptr<T>(new T)`, `*new T`, unevaluated operands, initialisers outside of functions;
// in C++20 constant expressions.
//
// The following does not compile, because the macro does not know what stands before it:
//   - declarations and calls by name: `void *operator new(std::size_t)`, `::operator new(8)`;
//   - a cast without parentheses, or a prefix other than `*`: `(Base *)new Derived`.
//     `(Base *)(new Derived)` and static_cast compile;
//   - `::new T`;
//   - `#include` of a header that has one of these: include those before this one.
// Around such lines:
//
//     #include <heapledger/new_macro_off.hpp>
//     struct Node { void *operator new(std::size_t size); };
//     #include <heapledger/new_macro.hpp>
//
// Placement new into memory of a block stamps that block.
#include "heapledger.hpp"

// These may be included later by other headers: libstdc++ places objects by calls that the macro
// would change.
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#if HEAPLEDGER_IS_ON && !defined(new)
#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wkeyword-macro"
#endif
#define new ::heapledger::at(__FILE__, __LINE__) * new
#ifdef __clang__
#pragma clang diagnostic pop
#endif
#endif
