// Ends what <heapledger/new_macro.hpp> began; including that again begins it anew.
#undef new
