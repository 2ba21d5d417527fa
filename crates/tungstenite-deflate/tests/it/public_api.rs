//! The crate's public API as text, so that none of it changes unseen.
//!
//! A `pub` item stands in a public module or is exported by `lib.rs`; the lint `unreachable_pub`
//! and a check below see to it. So the sources say what the API is, and no nightly compiler need.

use std::{collections::BTreeSet, env, fs, path::Path};

use syn::{Attribute, Fields, File, ImplItem, Item, ItemImpl, Type, UseTree, Visibility};

const HELP: &str = "UPDATE_SNAPSHOTS=1 cargo test -p tungstenite-deflate --test it public_api writes \
                    tests/public_api.txt anew; CHANGELOG.md says what callers must change";

#[test]
fn the_public_api_is_the_committed_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (path, api) = (root.join("tests/public_api.txt"), public_api(&root.join("src")));
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &api).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    let known: BTreeSet<_> = committed.lines().collect();
    let new: BTreeSet<_> = api.lines().collect();
    let gone: Vec<_> = known.difference(&new).collect();
    let added: Vec<_> = new.difference(&known).collect();
    assert!(committed == api, "the public API changed: without {gone:#?}, with {added:#?}; {HELP}");
}

#[test]
fn changes_of_the_api_are_seen_and_others_are_not() {
    let api = |source: &str| rendered(public_items(parsed(source), &BTreeSet::from(["A".to_owned()])));
    let base = "#[derive(Debug)] pub struct A { pub b: u8, c: u8 }
        impl A { pub const D: u8 = 1; pub fn e(&self) -> u8 { self.c } fn f(&self) {} }
        impl Drop for A { fn drop(&mut self) {} }
        #[non_exhaustive] pub enum G { H(#[from] u8) }
        pub async fn i<T: Send>(j: T) where T: Sync {}";
    for (from, to) in [
        ("#[derive(Debug)]", "#[derive(Debug, Clone)]"),
        ("pub b: u8", "pub b: u16"),
        ("pub b: u8, c: u8", "pub b: u8"),
        ("pub const D: u8 = 1", "pub const D: u8 = 2"),
        ("pub fn e(&self)", "pub fn e(&mut self)"),
        ("impl Drop for A { fn drop(&mut self) {} }", ""),
        ("#[non_exhaustive]", ""),
        ("#[from] ", ""),
        ("T: Sync", "T: Sized"),
        ("pub async fn i", "pub fn i"),
    ] {
        assert_ne!(api(&base.replacen(from, to, 1)), api(base), "{from:?} to {to:?}");
    }
    for (from, to) in [
        ("c: u8 }", "k: u16 }"),
        ("{ self.c }", "{ 1 }"),
        (" fn f(&self) {}", ""),
        ("pub struct A", "/// Says what it is for.\n pub struct A"),
        ("fn drop(&mut self) {}", "fn drop(&mut self) { return; }"),
    ] {
        assert_eq!(api(&base.replacen(from, to, 1)), api(base), "{from:?} to {to:?}");
    }
}

/// What a user of the sources in this folder can name, and its impls.
fn public_api(src: &Path) -> String {
    let read = |module: &str| parsed(&fs::read_to_string(src.join(module).with_extension("rs")).unwrap());
    let lib = read("lib");
    let modules: Vec<_> = lib.items.iter().filter_map(as_module).collect();
    let exports: BTreeSet<_> = lib.items.iter().flat_map(exported).collect();
    let types: BTreeSet<_> =
        modules.iter().flat_map(|(name, _)| read(name).items).filter_map(|item| named_type(&item)).collect();
    let mut root = public_items(lib, &types);
    let mut api = String::new();
    for (name, is_public) in modules {
        let items = public_items(read(&name), &types);
        if is_public {
            api += &format!("\n// --- {name} ---\n\n{}", rendered(items));
        } else {
            let lost: Vec<_> =
                items.iter().filter_map(name_of).filter(|name| !exports.contains(name)).collect();
            assert!(lost.is_empty(), "pub in the private module {name}, not exported: {lost:?}");
            root.extend(items);
        }
    }
    rendered(root) + &api
}

fn parsed(source: &str) -> File {
    syn::parse_file(source).unwrap()
}

/// Each item by itself, sorted: where it stands is nobody's concern.
fn rendered(items: Vec<Item>) -> String {
    let text = |item| prettyplease::unparse(&File { shebang: None, attrs: Vec::new(), items: vec![item] });
    let mut texts: Vec<String> = items.into_iter().map(text).collect();
    texts.sort();
    texts.concat()
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn as_module(item: &Item) -> Option<(String, bool)> {
    let Item::Mod(module) = item else { return None };
    module.content.is_none().then(|| (module.ident.to_string(), is_public(&module.vis)))
}

/// The names that a `pub use` adds.
fn exported(item: &Item) -> Vec<String> {
    fn names(tree: &UseTree) -> Vec<String> {
        match tree {
            UseTree::Path(path) => names(&path.tree),
            UseTree::Name(name) => vec![name.ident.to_string()],
            UseTree::Rename(rename) => vec![rename.rename.to_string()],
            UseTree::Group(group) => group.items.iter().flat_map(names).collect(),
            UseTree::Glob(_) => panic!("lib.rs exports by name, so that this test sees what"),
        }
    }
    match item {
        Item::Use(import) if is_public(&import.vis) => names(&import.tree),
        _ => Vec::new(),
    }
}

fn named_type(item: &Item) -> Option<String> {
    match item {
        Item::Struct(item) => is_public(&item.vis).then(|| item.ident.to_string()),
        Item::Enum(item) => is_public(&item.vis).then(|| item.ident.to_string()),
        _ => None,
    }
}

/// The name by which `lib.rs` must export an item of a private module.
fn name_of(item: &Item) -> Option<String> {
    match item {
        Item::Const(item) => Some(item.ident.to_string()),
        Item::Fn(item) => Some(item.sig.ident.to_string()),
        Item::Trait(item) => Some(item.ident.to_string()),
        Item::Type(item) => Some(item.ident.to_string()),
        other => named_type(other),
    }
}

/// The public items without bodies, private fields and documentation; impls of these types only.
fn public_items(file: File, types: &BTreeSet<String>) -> Vec<Item> {
    file.items.into_iter().filter_map(|item| public_item(item, types)).collect()
}

fn public_item(mut item: Item, types: &BTreeSet<String>) -> Option<Item> {
    let visibility = match &mut item {
        Item::Use(item) => &item.vis,
        Item::Mod(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Const(item) => {
            strip(&mut item.attrs);
            &item.vis
        }
        Item::Fn(item) => {
            strip(&mut item.attrs);
            item.block.stmts.clear();
            &item.vis
        }
        Item::Struct(item) => {
            strip(&mut item.attrs);
            strip_fields(&mut item.fields);
            &item.vis
        }
        Item::Enum(item) => {
            strip(&mut item.attrs);
            for variant in &mut item.variants {
                strip(&mut variant.attrs);
                variant.fields.iter_mut().for_each(|field| strip(&mut field.attrs));
            }
            &item.vis
        }
        Item::Impl(block) => return keep_public(block, types).then_some(item),
        _ => return None,
    };
    is_public(visibility).then_some(item)
}

/// Attributes that callers depend on: derived traits, exhaustiveness, conversions.
fn strip(attributes: &mut Vec<Attribute>) {
    const TOLD: [&str; 5] = ["derive", "non_exhaustive", "must_use", "deprecated", "from"];
    attributes.retain(|attribute| TOLD.iter().any(|name| attribute.path().is_ident(name)));
}

/// Private fields become one, which says that callers cannot build the struct.
fn strip_fields(fields: &mut Fields) {
    let Fields::Named(named) = fields else { return };
    let all = named.named.len();
    named.named =
        std::mem::take(&mut named.named).into_iter().filter(|field| is_public(&field.vis)).collect();
    named.named.iter_mut().for_each(|field| strip(&mut field.attrs));
    if named.named.len() < all {
        named.named.push(syn::parse_quote!(private: ()));
    }
}

/// Leaves public functions and constants, of a trait its types; tells whether anything is left.
fn keep_public(block: &mut ItemImpl, types: &BTreeSet<String>) -> bool {
    let Type::Path(path) = &*block.self_ty else { return false };
    let name = path.path.segments.last().map(|segment| segment.ident.to_string());
    strip(&mut block.attrs);
    let is_trait = block.trait_.is_some();
    block.items.retain_mut(|item| match item {
        ImplItem::Fn(item) => {
            strip(&mut item.attrs);
            item.block.stmts.clear();
            is_public(&item.vis)
        }
        ImplItem::Const(item) => {
            strip(&mut item.attrs);
            is_public(&item.vis)
        }
        ImplItem::Type(_) => is_trait,
        _ => false,
    });
    name.is_some_and(|name| types.contains(&name)) && (is_trait || !block.items.is_empty())
}
