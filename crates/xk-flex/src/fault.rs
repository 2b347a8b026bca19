//! Accesses of the heap where no page is.

use libbpf_rs::query::{BtfInfoIter, ProgInfoIter, ProgInfoQueryOptions, ProgramInfo};

use crate::ext::string;

/// An access of the heap where no page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// In the heap, as programs and user space know it.
    pub address: u64,
    /// Of the instruction, in the kernel.
    pub instruction: u64,
}

impl Fault {
    /// File and line of the instruction, while its program is loaded. Nothing if the kernel does not tell addresses of
    /// programs, or the program has no information on lines.
    #[must_use]
    pub fn place(&self) -> Option<String> {
        let options = ProgInfoQueryOptions::default()
            .include_line_info(true)
            .include_jited_line_info(true)
            .include_jited_func_lens(true)
            .include_jited_ksyms(true);
        let program = ProgInfoIter::with_query_opts(options).find(|program| self.is_in(program))?;
        let starts = program.jited_line_info.iter().map(|start| *start as u64);
        let lines = starts.zip(&program.line_info).filter(|(start, _)| *start <= self.instruction);
        let (_, line) = lines.max_by_key(|(start, _)| *start)?;
        let types = BtfInfoIter::default().find(|types| types.id == program.btf_id)?;
        let file = string(&types.btf, line.file_name_off)?;
        let file = file.rsplit('/').next().unwrap_or_default();
        Some(format!("{file}:{}", line.line_num))
    }

    fn is_in(&self, program: &ProgramInfo) -> bool {
        let functions = program.jited_ksyms.iter().map(|start| *start as u64).zip(&program.jited_func_lens);
        functions.into_iter().any(|(start, len)| (start..start + u64::from(*len)).contains(&self.instruction))
    }
}
