use heapledger_core::sample::Random;

use super::*;
use crate::testing::damaged_text;

#[track_caller]
fn check(text: &str, full: &str, short: &str) {
    let found = Type::parse(text).unwrap_or_else(|| panic!("{text} is not understood"));
    assert_eq!((&*found.full(), &*found.short()), (full, short));
    // A normal spelling parses to itself.
    assert_eq!(Type::parse(full).unwrap().full(), full);
}

#[test]
fn one_spelling_of_each_type() {
    check("long int", "long", "long");
    check("long unsigned int", "unsigned long", "unsigned long");
    check("unsigned", "unsigned int", "unsigned int");
    check("short unsigned int", "unsigned short", "unsigned short");
    check("char const*", "const char*", "const char*");
    check("const char *", "const char*", "const char*");
    check("char* const", "char* const", "char* const");
    check("app::Grid<unsigned long, 3ul>", "app::Grid<unsigned long, 3>", "app::Grid<unsigned long, 3>");
    check("Paint<(app::Colour)1>", "Paint<(app::Colour)1>", "Paint<(app::Colour)1>");
    check("Tag<(char)97, true>", "Tag<97, true>", "Tag<97, true>");
    check("void (*)(int)", "void (*)(int)", "void (*)(int)");
    check("void (int, char const*)", "void (int, const char*)", "void (int, const char*)");
    check("double [3]", "double[3]", "double[3]");
    check("int app::X::*", "int app::X::*", "int app::X::*");
    check(
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char>>",
        "std::string",
    );
    check(
        "std::map<int, std::vector<long int, std::allocator<long int> >, std::less<int>, std::allocator<std::pair<int const, std::vector<long> > > >",
        "std::map<int, std::vector<long, std::allocator<long>>, std::less<int>, std::allocator<std::pair<const int, std::vector<long>>>>",
        "std::map<int, std::vector<long>>",
    );
    check(
        "std::_Sp_counted_ptr_inplace<app::Named, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>",
        "std::_Sp_counted_ptr_inplace<app::Named, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>",
        "std::_Sp_counted_ptr_inplace<app::Named>",
    );
    check(
        "std::stack<int, std::deque<int, std::allocator<int> > >",
        "std::stack<int, std::deque<int, std::allocator<int>>>",
        "std::stack<int>",
    );
    check("std::map<int, int, Order<int>>", "std::map<int, int, Order<int>>", "std::map<int, int, Order<int>>");
    check(
        "app::(anonymous namespace)::Hidden",
        "app::(anonymous namespace)::Hidden",
        "app::(anonymous namespace)::Hidden",
    );
    check("app::{anonymous}::Hidden", "app::(anonymous namespace)::Hidden", "app::(anonymous namespace)::Hidden");
    check("local_types()::Local", "local_types()::Local", "local_types()::Local");
    check("app::f(int) const::Local", "app::f(int)::Local", "app::f(int)::Local");
    check("local_types()::{lambda(int)#1}", "local_types()::{lambda(int)#1}", "local_types()::{lambda(int)#1}");
    check("std::function<long int(int)>", "std::function<long (int)>", "std::function<long (int)>");
}

#[test]
fn functions_without_results_and_parameters() {
    let check = |name: &str, names: &[&str]| {
        let path = Path::of_function(name).unwrap_or_else(|| panic!("{name} is not understood"));
        assert!(path.names().eq(names.iter().copied()), "{name}: {path:?}");
        path
    };
    let path = check("std::vector<int, std::allocator<int> >::push_back(int&&)", &["std", "vector", "push_back"]);
    assert_eq!(path.parent().unwrap().short(), "std::vector<int>");
    check("operator new(unsigned long)", &["operator new"]);
    check("operator new[](unsigned long)", &["operator new[]"]);
    check("app::Pooled::operator new(unsigned long)", &["app", "Pooled", "operator new"]);
    let path = check(
        "std::unique_ptr<app::Point, std::default_delete<app::Point> > std::make_unique<app::Point, int, int>(int&&, int&&)",
        &["std", "make_unique"],
    );
    assert_eq!(path.last().unwrap().arguments.as_ref().unwrap()[0].full(), "app::Point");
    check("local_types()::Local::Local()", &["local_types", "Local", "Local"]);
    check("std::string::size() const", &["std", "string", "size"]);
    check("main", &["main"]);
    check("app::Holder::operator bool() const", &["app", "Holder", "operator bool"]);
    check("std::ostream& app::operator<< <int>(std::ostream&, int)", &["app", "operator<<"]);
    check("local_types()::{lambda(int)#1}::operator()(int) const", &["local_types", "{lambda(int)#1}", "operator()"]);
    check(
        "std::_Function_handler<long (int), app::f()::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)",
        &["std", "_Function_handler", "_M_invoke"],
    );
}

#[test]
fn nothing_breaks_it() {
    let sample =
        "std::map<int, (anonymous namespace)::f(char const*) const::X<4ul>*>::operator<< <int>(a (*)(b), ~c[3])";
    let mut random = Random::new(1);
    for _ in 0..30_000 {
        let (text, _) = damaged_text(sample, 4, &mut random);
        if let Some(found) = Type::parse(&text) {
            assert!(found.full().len() <= 4 * text.len());
        }
        let _ = Path::of_function(&text);
    }
    assert_eq!(Type::parse(&"a<".repeat(8000)), None);
}
