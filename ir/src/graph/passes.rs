//! What passes need of a graph: users, reachability, removal of dead nodes.

use cranelift_entity::SecondaryMap;

use super::{Graph, Node, NodeKind, Value};
use crate::TensorType;

impl Node {
    /// The operands; none for inputs and constants.
    pub fn args(&self) -> &[Value] {
        match &self.kind {
            NodeKind::Apply(_, _, args) => args,
            _ => &[],
        }
    }
}

impl Graph {
    /// For each value the nodes that have it as an operand, in order, once for each operand.
    /// Outputs are not users.
    pub fn users(&self) -> SecondaryMap<Value, Vec<Value>> {
        let mut users: SecondaryMap<Value, Vec<Value>> =
            SecondaryMap::with_capacity(self.nodes.len());
        for (value, node) in self.nodes.iter() {
            node.args().iter().for_each(|&arg| users[arg].push(value));
        }
        users
    }

    /// Types of the outputs, in order.
    pub fn output_types(&self) -> Vec<&TensorType> {
        self.outputs.iter().map(|&output| self.ty(output)).collect()
    }

    /// Types of the inputs, in order.
    pub fn input_types(&self) -> Vec<&TensorType> {
        self.inputs().map(|input| self.ty(input)).collect()
    }

    /// Whether each argument is defined before its use: every graph is, that was made by
    /// [`apply`](Self::apply) or that verifies.
    pub fn is_topological(&self) -> bool {
        self.nodes.iter().all(|(value, node)| node.args().iter().all(|&arg| arg < value))
    }

    /// Which values the outputs depend on.
    pub fn live(&self) -> SecondaryMap<Value, bool> {
        let mut live = SecondaryMap::with_capacity(self.nodes.len());
        self.outputs.iter().for_each(|&output| live[output] = true);
        for (value, node) in self.nodes.iter().rev() {
            if live[value] {
                node.args().iter().for_each(|&arg| live[arg] = true);
            }
        }
        live
    }

    /// Removes the nodes that no output depends on, except for inputs: those are the interface.
    /// Returns the new value of each old one that is still there.
    pub fn eliminate_dead(&mut self) -> SecondaryMap<Value, Option<Value>> {
        let live = self.live();
        let mut renamed: SecondaryMap<Value, Option<Value>> = SecondaryMap::new();
        let rename = |renamed: &SecondaryMap<Value, Option<Value>>, value: &mut Value| {
            *value = renamed[*value].expect("operands of live nodes are live and defined before");
        };
        let nodes = std::mem::take(&mut self.nodes);
        for (value, mut node) in nodes {
            let is_input = matches!(node.kind, NodeKind::Input { .. });
            if !live[value] && !is_input {
                continue;
            }
            if let NodeKind::Apply(_, _, args) = &mut node.kind {
                args.iter_mut().for_each(|arg| rename(&renamed, arg));
            }
            renamed[value] = Some(self.nodes.push(node));
        }
        self.outputs.iter_mut().for_each(|output| rename(&renamed, output));
        super::debug_verify(self, "eliminate_dead");
        renamed
    }
}
