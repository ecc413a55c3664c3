// Undoes <heapledger/new_macro.hpp>; including that again turns it on again.
#undef new
