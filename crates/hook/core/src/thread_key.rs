//! Thread-specific keys of the C library that no other C library in the process hands out soon.
//!
//! glibc keeps the values of the first 32 keys in the thread's descriptor. All C libraries of a
//! process share the descriptor, but a namespace of `dlmopen` has a key allocator of its own, which
//! hands out keys from 0 again: it takes a value of ours for that of its own key. So the last of
//! these keys is the best.

use core::ffi::c_void;

/// The number of keys whose values are in the thread's descriptor.
const KEYS_SHARED: usize = 32;

/// The destructor of a key.
pub type Destructor = unsafe extern "C" fn(*mut c_void);
/// `pthread_key_create`.
pub type KeyCreate = unsafe extern "C" fn(*mut u32, Option<Destructor>) -> i32;
/// `pthread_key_delete`.
pub type KeyDelete = unsafe extern "C" fn(u32) -> i32;

/// Creates the last of the keys that are free and whose values are in the thread's descriptor; if
/// there is none, any key. `None` if the process has no key left. Calls the C library up to 64
/// times.
///
/// # Safety
///
/// The functions are of one C library, and the destructor may be called for any value that is set
/// for the key.
pub unsafe fn create_last(key_create: KeyCreate, key_delete: KeyDelete, destructor: Destructor) -> Option<u32> {
    // Keys come in ascending order, so all before it are created, and deleted again.
    let (mut keys, mut count) = ([0; KEYS_SHARED], 0);
    for key in &mut keys {
        // SAFETY: the C library's function with arguments of its documented types.
        if unsafe { key_create(key, Some(destructor)) } != 0 {
            break;
        }
        count += 1;
        if *key as usize >= KEYS_SHARED - 1 {
            break;
        }
    }
    let made = keys.get(..count).unwrap_or(&[]);
    let shared = made.iter().copied().filter(|&key| (key as usize) < KEYS_SHARED).max();
    let own = shared.or(made.first().copied())?;
    for &key in made.iter().filter(|&&key| key != own) {
        // SAFETY: the C library's function; the key was created here, and no thread has a value for
        // it.
        unsafe { key_delete(key) };
    }
    Some(own)
}
