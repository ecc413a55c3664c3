use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::breakdown::Breakdown;
use crate::random;
use crate::result::{Census, CensusValue};

proptest! {
    /// Each node of a census is in the one site that has its properties.
    #[test]
    fn sites_are_the_groups_of_the_nodes_of_a_census(graph in random::graphs()) {
        let census = Census::take(&graph, &Breakdown::Bucket).unwrap();
        let CensusValue::Bucket(ids) = census.value else { panic!("a bucket is asked for") };
        let mut expected: HashMap<_, (u64, u64)> = HashMap::new();
        for node in ids.into_iter().filter_map(|id| graph.find(id)) {
            let own = match graph.coarse_type(node) {
                CoarseType::Object => graph.class(node),
                CoarseType::DomNode => graph.descriptive_name(node),
                _ => None,
            };
            let name = graph.text(own.unwrap_or(graph.type_name(node)));
            let file = graph.script_file(node).map(|file| graph.text(file));
            let figures = expected.entry((graph.stack(node), graph.coarse_type(node), name, file)).or_default();
            *figures = (figures.0 + 1, figures.1 + graph.size(node));
        }
        let found = sites(&graph);
        prop_assert_eq!(found.len(), expected.len());
        for site in found {
            let (name, file) = (graph.text(site.type_name), site.script_file.map(|file| graph.text(file)));
            let figures = expected.get(&(site.stack, site.coarse_type, name, file)).copied();
            prop_assert_eq!(figures, Some((site.count, site.bytes)));
        }
    }
}
