//! The contract of a page: it needs nothing else, nothing from outside becomes markup, and it tells without colours, scripts
//! or a mouse.

use throng_report::{
    Bars, Block, Cell, Chart, Curve, Frames, Histogram, Kind, Limit, Line, Mark, Page, Picture, Section, Shape, Table,
    Term, Tile, Validity, Verdict,
};

const UPLOT: &str = include_str!("../assets/uplot/uPlot.iife.min.js");
/// Every kind of run.
const KINDS: [Kind; 7] =
    [Kind::Crowd, Kind::Match, Kind::Capacity, Kind::Gateway, Kind::Models, Kind::Comparison, Kind::Index];

/// A page with every kind of block, where each text is `text`.
fn full(kind: Kind, text: &str) -> Page {
    let term = || Term::new(text, text);
    let line = || Some(Line { value: 5.0, name: text.to_owned() });
    let mut table = Table::new(text, &format!("{text} | #number"));
    table.note = text.to_owned();
    let link = Cell { link: Some(format!("{text}/report.html")), ..Cell::from(text) };
    table.push([Cell::of(term()), Cell::part(text), Cell::verdict(Verdict::Missed, text), link]);
    let curve = |values: &[f64]| Curve {
        name: text.to_owned(),
        ink: text.to_owned(),
        values: values.iter().copied().map(Some).collect(),
    };
    let chart = |values: &[f64]| Chart {
        terms: vec![term()],
        unit: text.to_owned(),
        x: vec![0.0, 1.0, 2.0],
        curves: vec![curve(values), curve(values)],
        limit: line(),
        ..Chart::default()
    };
    let bars = Bars {
        title: text.to_owned(),
        unit: text.to_owned(),
        rows: vec![(text.to_owned(), vec![(text.to_owned(), 1.0), ("send".to_owned(), 3.0)])],
        note: text.to_owned(),
    };
    let frames = Frames {
        x: vec![0.0, 0.1, 0.2],
        parts: vec![(text.to_owned(), vec![1.0, 2.0, 1.0]), ("send".to_owned(), vec![3.0, 7.0, 3.0])],
        total: vec![4.0, 9.0, 4.0],
        missed: vec![0, 2, 0],
        budget: line(),
        point: text.to_owned(),
    };
    let histogram = Histogram { from: vec![0.0, 1.0], counts: vec![3, 1], budget: line() };
    let mark =
        |shape| Mark { shape, fill: text.to_owned(), line: text.to_owned(), title: text.to_owned(), ..Mark::default() };
    let picture = Picture {
        title: text.to_owned(),
        alternative: text.to_owned(),
        size: (100.0, 50.0),
        least_width: 0,
        key: vec![(text.to_owned(), text.to_owned())],
        marks: vec![mark(Shape::Text(1.0, 2.0, 9.0, text.to_owned())), mark(Shape::Box(0.0, 0.0, 1.0, 1.0))],
    };
    let section = Section::new(text)
        .note(text)
        .with(text)
        .with(table)
        .with(bars)
        .with(frames)
        .with(histogram)
        .with(chart(&[1.0, 2.0, 3.0]))
        .with(chart(&[2.0, 2.0, 2.0]))
        .with(picture);
    let mut page = Page::new(kind, text);
    for part in [&mut page.subtitle, &mut page.lead, &mut page.limits_note, &mut page.source] {
        text.clone_into(part);
    }
    page.facts = vec![text.to_owned()];
    page.index = Some(text.to_owned());
    page.validity = Some(Validity { is_valid: false, words: text.to_owned(), reasons: vec![text.to_owned()] });
    page.limits =
        vec![Limit { term: term(), limit: text.to_owned(), value: text.to_owned(), verdict: Verdict::Missed }];
    let (value, unit, note) = (text.to_owned(), text.to_owned(), text.to_owned());
    page.tiles = vec![Tile { term: term(), value, unit, note, verdict: Some(Verdict::Missed) }];
    page.sections = vec![section];
    page
}

#[test]
fn a_page_loads_nothing_from_anywhere() {
    for kind in KINDS {
        let page = full(kind, "words").render().unwrap();
        let own = page.replace(UPLOT, "").replace("http://www.w3.org/2000/svg", "");
        for sign in ["http://", "https://", " src=", "@import", "url(", "<link", "fetch("] {
            assert!(!own.contains(sign), "the page contains {sign}");
        }
        assert!(page.contains("Leon Sorokin"), "uPlot's licence travels with it");
    }
}

#[test]
fn text_from_outside_cannot_become_markup() {
    let attack = "</script><script>alert(1)</script><!--\"'><img onerror=alert(1)><b onclick=\"x\"";
    for kind in KINDS {
        let clean = full(kind, "words").render().unwrap();
        let page = full(kind, attack).render().unwrap();
        for sign in ["<script", "</script", "<!--", "<img", "<b onclick"] {
            assert_eq!(page.matches(sign).count(), clean.matches(sign).count(), "{sign} in a {} page", kind.name());
        }
    }
}

#[test]
fn a_link_leads_to_another_page_of_the_folder_only() {
    for (link, is_kept) in
        [("20260131-120000-crowd/report.html", true), ("javascript:alert(1)", false), ("//elsewhere", false)]
    {
        let mut table = Table::new("", "");
        table.push([Cell { link: Some(link.to_owned()), ..Cell::from("run") }]);
        let mut page = Page::new(Kind::Index, "runs");
        page.index = Some(link.to_owned());
        page.sections = vec![Section::new("Runs").with(table)];
        // Slashes are escaped too.
        let html = page.render().unwrap().replace("&#x2f;", "/");
        let count = html.matches(&format!("href=\"{link}\"")).count();
        assert_eq!(count, if is_kept { 2 } else { 0 }, "{link}");
    }
}

#[test]
fn verdicts_and_parts_are_told_in_words_and_not_by_colours_alone() {
    let page = full(Kind::Crowd, "words").render().unwrap();
    let text = page.split("<script").next().unwrap();
    assert!(text.contains("✗ missed") && text.contains("Not a valid run"));
    assert!(
        text.contains("aria-label=\"words 1 words, send 3 words\"")
            || text.contains("aria-label=\"words: words 1 words, send 3 words\"")
    );
    // The frames' table has the longest frame before a script chooses another one.
    assert!(text.contains("slowest words, at 0.1 s") && text.contains("77.8 %"), "{text}");
    // A curve that never moves is a sentence.
    assert!(text.contains("2 words all the time"));
    assert_eq!(text.matches("data-plot=").count(), 3, "frames, histogram and one chart");
    assert!(text.matches("aria-label=").count() >= 5);
}

#[test]
fn each_term_is_explained_once_and_opens_by_a_button() {
    let mut page = Page::new(Kind::Crowd, "run");
    let mut table = Table::new("", "");
    let frame = || Cell::of(Term::new("frame", "working time of a tick"));
    table.push([frame(), frame()]);
    table.push([Cell::of(Term::new("tick", "a step of the world")), Cell::from("plain")]);
    page.sections = vec![Section::new("Frames").with(table)];
    let html = page.render().unwrap();
    assert_eq!(html.matches("popovertarget=\"term-0\"").count(), 2);
    assert_eq!(html.matches("popover id=").count(), 2);
    assert_eq!(html.matches("<dt>").count(), 2, "the list at the end");
    assert!(html.contains("<dt>frame</dt><dd>working time of a tick</dd>"));
}

#[test]
fn a_valid_run_that_misses_a_limit_does_not_look_well() {
    let mut page = full(Kind::Crowd, "words");
    page.validity = Some(Validity { is_valid: true, words: String::new(), reasons: Vec::new() });
    let html = page.render().unwrap();
    assert!(html.contains("1 of 1 limits missed") && !html.contains("verdict kept"));
    page.limits[0].verdict = Verdict::Kept;
    assert!(page.render().unwrap().contains("✓ Valid run, and all limits kept"));
}

#[test]
fn a_section_of_a_file_is_the_same_page_again() {
    let page = full(Kind::Match, "words");
    let text = serde_json::to_string(&page).unwrap();
    let read: Page = serde_json::from_str(&text).unwrap();
    assert!(read == page && read.render().unwrap() == page.render().unwrap());
}

#[test]
fn blocks_without_anything_to_show_are_left_out() {
    let section = Section::new("Empty")
        .with(Table::new("none", "a"))
        .with(Chart::default())
        .with(Histogram::default())
        .with(Frames::default())
        .with(Bars::default())
        .with("");
    assert_eq!(section.blocks, Vec::<Block>::new());
}
