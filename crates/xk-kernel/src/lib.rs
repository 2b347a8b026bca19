//! The kernel under study: identity, text, symbols, source, configuration, bundles.
