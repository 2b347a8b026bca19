//! A `.BTF` section for tests.

/// A `.BTF` section that knows functions by name and number of arguments, all of them `long`.
pub fn btf(functions: &[(&str, u32)]) -> Vec<u8> {
    let [int, func, proto] = [1_u32, 12, 13];
    let mut strings = vec![0];
    let mut types: Vec<u8> = Vec::new();
    let mut push = |words: &[u32]| words.iter().for_each(|word| types.extend(word.to_le_bytes()));
    push(&[0, int << 24, 8, 64]);
    for (number, (name, arguments)) in functions.iter().enumerate() {
        push(&[0, proto << 24 | arguments, 1]);
        (0..*arguments).for_each(|_| push(&[0, 1]));
        push(&[strings.len() as u32, func << 24, 2 + 2 * number as u32]);
        strings.extend(name.bytes().chain([0]));
    }
    let mut data = vec![0x9f, 0xeb, 1, 0];
    for field in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        data.extend(field.to_le_bytes());
    }
    data.into_iter().chain(types).chain(strings).collect()
}
