//! Modules as recorded, and tables of what is known about each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// A module as recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ModuleRef<'a> {
    /// Path as recorded.
    pub path: &'a [u8],
    /// Build id as recorded; empty if there was none: then the file at the path is used unchecked.
    pub build_id: &'a [u8],
}

/// A table with a value for each module, made when the module is first asked for.
///
/// Threads that use the values of different modules run in parallel; those that use one value take
/// turns.
#[derive(Debug)]
pub struct Modules<T> {
    /// The values of the modules at each path.
    slots: Mutex<HashMap<Box<[u8]>, Builds<T>>>,
}

/// The values of modules with the same path.
type Builds<T> = Vec<Slot<T>>;

#[derive(Debug)]
struct Slot<T> {
    build_id: Box<[u8]>,
    value: Arc<OnceLock<Mutex<T>>>,
}

impl<T> Default for Modules<T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<T> Modules<T> {
    /// Calls `ask` with the value of a module, making it first if this is the first time.
    pub fn with<R>(&self, module: ModuleRef<'_>, make: impl FnOnce() -> T, ask: impl FnOnce(&mut T) -> R) -> R {
        // Making it may take long, so not under the lock of the table.
        let value = self.slot(module);
        let made = value.get_or_init(|| Mutex::new(make()));
        ask(&mut lock(made))
    }

    /// Calls `visit` with each value that has been made.
    pub fn for_each(&self, mut visit: impl FnMut(ModuleRef<'_>, &mut T)) {
        for (path, slots) in &*lock(&self.slots) {
            for slot in slots {
                if let Some(value) = slot.value.get() {
                    visit(ModuleRef { path, build_id: &slot.build_id }, &mut lock(value));
                }
            }
        }
    }

    fn slot(&self, module: ModuleRef<'_>) -> Arc<OnceLock<Mutex<T>>> {
        let mut modules = lock(&self.slots);
        let slots = match modules.get_mut(module.path) {
            Some(slots) => slots,
            None => modules.entry(module.path.into()).or_default(),
        };
        if let Some(slot) = slots.iter().find(|slot| *slot.build_id == *module.build_id) {
            return slot.value.clone();
        }
        let value = Arc::<OnceLock<_>>::default();
        slots.push(Slot { build_id: module.build_id.into(), value: value.clone() });
        value
    }
}

/// Locks a mutex. A panic in another thread leaves no harmful state: at worst an answer is computed
/// again.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
