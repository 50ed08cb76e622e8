//! A call of a function that a model defines, as a model of its own: what its walk enters like a graph.

use std::collections::{BTreeMap, BTreeSet};

use super::import;
use super::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto};

/// The function's body with the attributes of the call in place; `None` if the node calls none.
pub(super) fn body(model: &ModelProto, call: &NodeProto) -> Option<ModelProto> {
    let domain = import::domain(call.domain.as_deref());
    let name = call.op_type.as_deref().unwrap_or_default();
    let &function = import::functions(model).get(&(domain, name))?;
    let defaults = function.attribute_proto.iter();
    let given: BTreeMap<&str, &AttributeProto> = defaults
        .chain(&call.attribute)
        .map(|attr| (attr.name.as_deref().unwrap_or_default(), attr))
        .collect();
    let operand = |at: usize| call.input.get(at).filter(|name| !name.is_empty());
    let inputs = function.input.iter().enumerate();
    let absent: BTreeSet<&str> =
        inputs.filter(|(at, _)| operand(*at).is_none()).map(|(_, name)| name.as_str()).collect();
    let mut node = function.node.clone();
    node.iter_mut().for_each(|node| resolve(node, &given, &absent));
    // Types of operands are those of the moment, not the function's to say.
    let port = |name: &String| ValueInfoProto {
        name: Some(name.clone()),
        r#type: Some(TypeProto::default()),
    };
    let graph = GraphProto {
        name: Some(name.to_owned()),
        node,
        input: function.input.iter().map(port).collect(),
        output: function.output.iter().map(port).collect(),
        ..GraphProto::default()
    };
    Some(ModelProto {
        graph: Some(graph),
        opset_import: function.opset_import.clone(),
        functions: model.functions.clone(),
        ..ModelProto::default()
    })
}

/// References to attributes become what the call gives; what it does not give is left out.
fn resolve(node: &mut NodeProto, given: &BTreeMap<&str, &AttributeProto>, absent: &BTreeSet<&str>) {
    node.input.iter_mut().filter(|name| absent.contains(name.as_str())).for_each(String::clear);
    node.attribute.retain_mut(|attr| {
        match attr.ref_attr_name.as_deref().filter(|name| !name.is_empty()) {
            Some(reference) => {
                let Some(&value) = given.get(reference) else { return false };
                let name = attr.name.take();
                *attr = AttributeProto { name, ..value.clone() };
            }
            None => {
                for graph in attr.g.iter_mut().chain(&mut attr.graphs) {
                    graph.node.iter_mut().for_each(|node| resolve(node, given, absent));
                }
            }
        }
        true
    });
}
