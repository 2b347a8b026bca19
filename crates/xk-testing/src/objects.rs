//! Parsed objects of assembly text.

#![allow(clippy::unwrap_used)]

use xk_lift::object::Object;

use crate::compile::assemble;

/// An object that defines one function `f` with this body.
pub fn function(body: &str) -> Object {
    object(&format!(".text\n.globl f\n.type f,@function\nf:\n{body}\n.size f,.-f\n"))
}

/// A parsed object of this assembly text.
pub fn object(text: &str) -> Object {
    Object::parse(&assemble(text)).unwrap()
}
