//! The list of mappings that profiles of addresses end with: lines of `/proc/PID/maps`.

use crate::profile::Module;

/// Returns the executables and libraries, in the order of the list: the executable mappings of
/// files.
pub(crate) fn modules<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Module> {
    lines.filter_map(module).collect()
}

fn module(line: &str) -> Option<Module> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let (rights, offset) = (words.next()?, words.next()?);
    let (_device, inode) = (words.next()?, words.next()?);
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, end, file_offset) = (number(start)?, number(end)?, number(offset)?);
    // The path is the rest of the line, spaces and all.
    let path = line.split_once(inode)?.1;
    let path = words.next().and_then(|first| Some(&path[path.find(first)?..]))?.trim_end();
    let is_code = rights.contains('x') && start < end;
    is_code.then(|| Module { path: path.into(), start, end, file_offset, ..Module::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_files() {
        let maps = "55d0-55e0 r--p 00000000 08:01 12 /bin/a\n\
            55e0-5600 r-xp 00001000 08:01 12   /bin/a b\n\
            7f00-7f10 r-xp 0 00:00 0 [vdso]\n\
            7f20-7f30 rwxp 0 00:00 0\nx\n\n7f30-7f20 r-xp 0 0:0 0 /z";
        let modules = modules(maps.lines());
        let found: Vec<_> = modules.iter().map(|it| (it.path.as_str(), it.start, it.end, it.file_offset)).collect();
        assert_eq!(found, [("/bin/a b", 0x55e0, 0x5600, 0x1000), ("[vdso]", 0x7f00, 0x7f10, 0)]);
    }
}
