// Every `new` below this line knows its type, file and line: `new T(…)` becomes `heapledger::at(FILE, LINE) * new T(…)`,
// which stamps the block and is the same pointer. Opt-in: include it after all other headers, in source files; C++11 on.
//
// What keeps compiling, and means what it did: arrays, `new (std::nothrow) T`, placement new, `new auto`, classes with
// operators of their own, local classes, templates, `std::unique_ptr<T>(new T)`, `*new T`, unevaluated operands, initialisers
// outside of functions; in C++20 constant expressions.
//
// What does not compile, since the macro does not know what stands before it:
//   - declarations and calls by name: `void *operator new(std::size_t)`, `::operator new(8)`;
//   - a cast without parentheses, or another prefix but `*`: `(Base *)new Derived`. `(Base *)(new Derived)` does, and
//     static_cast;
//   - `::new T`;
//   - `#include` of a header that has one of these: so include those before.
// Around such lines:
//
//     #include <heapledger/new_macro_off.hpp>
//     struct Node { void *operator new(std::size_t size); };
//     #include <heapledger/new_macro.hpp>
//
// Placement new into memory of a block stamps that block.
#include "heapledger.hpp"

// For what would include them later: libstdc++ places objects by calls that the macro would change.
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
