mod common;
use common::tree;
use std::time::Instant;
use xk_const::*;

#[test]
fn eight() {
    let tree = tree();
    let t = Instant::now();
    Index::open(tree).unwrap();
    println!("index {:?}", t.elapsed());
    for spec in [
        "BLK_MAX_REQUEST_COUNT",
        "MAX_SOFTIRQ_RESTART",
        "SHRINK_BATCH",
        "NR_MAX_BATCHED_MIGRATION",
        "TCP_INIT_CWND",
        "net/ipv4/tcp_cubic.c:439",
        "HYSTART_DELAY_MAX",
        "net/ipv4/tcp.c:1162",
    ] {
        let t = Instant::now();
        let c = resolve(tree, &Spec::parse(spec).unwrap());
        println!("{spec} {:?}", t.elapsed());
        match c {
            Ok(c) => {
                println!("  {} = {} {:?} {:?} in {}", c.id, c.default, c.c_type, c.operator, c.witness);
                let t = Instant::now();
                let u = users(tree, &c).unwrap();
                println!(
                    "  users {:?}: {:?} via {:?} {:?}",
                    t.elapsed(),
                    u.units.iter().map(|u| &u.source).collect::<Vec<_>>(),
                    u.names.iter().map(|n| &n.name).collect::<Vec<_>>(),
                    (u.shapes, u.conditionals, u.wide, u.generated)
                );
                println!("  {:?}", choose_values(c.default, c.c_type, c.operator, Edges::Avoid));
            }
            Err(e) => println!("  {e}"),
        }
    }
}

#[test]
#[ignore]
fn corpus() {
    let tree = tree();
    let text = std::fs::read_to_string("/work/shared/corpus.tsv").unwrap();
    for line in text.lines().skip(1) {
        let f: Vec<&str> = line.split('\t').collect();
        let spec = Spec::parse(f[1]).or_else(|_| Spec::parse(f[2])).unwrap();
        let t = Instant::now();
        match resolve(tree, &spec) {
            Ok(c) => {
                let at = format!("{}:{}", c.site.path, c.id.line);
                let u = users(tree, &c).unwrap();
                println!(
                    "{} {} {:?} = {} {} {:?} {:.1?} units {} {}",
                    if at == f[2] { "ok  " } else { "OTHER" },
                    f[1],
                    c.form,
                    c.default,
                    c.c_type.name(),
                    c.operator,
                    t.elapsed(),
                    u.units.len(),
                    if u.units.len() <= 8 {
                        u.units.iter().map(|u| u.source.clone()).collect::<Vec<_>>().join(" ")
                    } else {
                        String::new()
                    }
                );
                println!("     corpus: {}", f[4]);
                if !u.shapes.is_empty() || !u.conditionals.is_empty() || !u.wide.is_empty() || !u.generated.is_empty() {
                    println!("     {:?}", (u.shapes, u.conditionals, u.wide, u.generated));
                }
            }
            Err(e) => println!("FAIL {} {:.1?}: {e}", f[1], t.elapsed()),
        }
    }
}
