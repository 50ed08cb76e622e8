//! Builds models message by message, runs them, and compares numbers.

use eggine_ir::graph::eval::{Rounding, eval};
use eggine_ir::onnx::proto::{
    AttributeProto, DimensionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    TensorProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use eggine_ir::onnx::{ImportError, ImportOptions, Imported, import_bytes};
use eggine_ir::{DType, NodeKind, Op, Tensor};
use prost::Message;

pub(crate) fn attr(name: &str) -> AttributeProto {
    AttributeProto { name: Some(name.into()), ..Default::default() }
}

pub(crate) fn int(name: &str, value: i64) -> AttributeProto {
    AttributeProto { i: Some(value), r#type: Some(2), ..attr(name) }
}

pub(crate) fn float(name: &str, value: f32) -> AttributeProto {
    AttributeProto { f: Some(value), r#type: Some(1), ..attr(name) }
}

pub(crate) fn ints(name: &str, values: &[i64]) -> AttributeProto {
    AttributeProto { ints: values.to_vec(), r#type: Some(7), ..attr(name) }
}

pub(crate) fn string(name: &str, value: &str) -> AttributeProto {
    AttributeProto { s: Some(value.to_owned().into()), r#type: Some(3), ..attr(name) }
}

pub(crate) fn subgraph(name: &str, graph: GraphProto) -> AttributeProto {
    AttributeProto { g: Some(graph), r#type: Some(5), ..attr(name) }
}

pub(crate) fn node(
    op: &str,
    inputs: &[&str],
    outputs: &[&str],
    attribute: Vec<AttributeProto>,
) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        input: inputs.iter().map(|&s| s.into()).collect(),
        output: outputs.iter().map(|&s| s.into()).collect(),
        attribute,
        ..Default::default()
    }
}

pub(crate) fn named(name: &str, node: NodeProto) -> NodeProto {
    NodeProto { name: Some(name.into()), ..node }
}

pub(crate) fn in_domain(domain: &str, node: NodeProto) -> NodeProto {
    NodeProto { domain: Some(domain.into()), ..node }
}

/// `dims` as in a printed type: numbers, names or `?`.
pub(crate) fn value_info(name: &str, dtype: DType, dims: &str) -> ValueInfoProto {
    let dim = dims.split(',').filter(|s| !s.is_empty()).map(|text| match text.parse() {
        Ok(n) => DimensionProto { dim_value: Some(n), dim_param: None },
        Err(_) if text == "?" => DimensionProto::default(),
        Err(_) => DimensionProto { dim_value: None, dim_param: Some(text.into()) },
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: Some(dtype.onnx_code()), shape });
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto { tensor_type, ..Default::default() }),
    }
}

pub(crate) fn tensor(name: &str, value: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: value.extents.iter().map(|&x| x as i64).collect(),
        data_type: Some(value.dtype.onnx_code()),
        raw_data: Some(value.bytes.clone()),
        ..Default::default()
    }
}

/// A model under construction.
#[derive(Clone)]
pub(crate) struct Build(pub(crate) ModelProto);

pub(crate) fn model(opset: i64) -> Build {
    let import = OperatorSetIdProto { domain: None, version: Some(opset) };
    let graph = GraphProto { name: Some("g".into()), ..Default::default() };
    Build(ModelProto {
        ir_version: Some(8),
        opset_import: vec![import],
        graph: Some(graph),
        ..Default::default()
    })
}

impl Build {
    pub(crate) fn graph(&mut self) -> &mut GraphProto {
        self.0.graph.as_mut().unwrap()
    }

    pub(crate) fn domain(mut self, domain: &str, version: i64) -> Self {
        self.0
            .opset_import
            .push(OperatorSetIdProto { domain: Some(domain.into()), version: Some(version) });
        self
    }

    pub(crate) fn input(mut self, name: &str, dtype: DType, dims: &str) -> Self {
        self.graph().input.push(value_info(name, dtype, dims));
        self
    }

    pub(crate) fn constant(mut self, name: &str, value: &Tensor) -> Self {
        self.graph().initializer.push(tensor(name, value));
        self
    }

    pub(crate) fn floats(self, name: &str, extents: &[usize], data: &[f32]) -> Self {
        self.constant(name, &Tensor::f32(extents, data))
    }

    pub(crate) fn longs(self, name: &str, data: &[i64]) -> Self {
        self.constant(name, &Tensor::i64(&[data.len()], data))
    }

    pub(crate) fn node(mut self, node: NodeProto) -> Self {
        self.graph().node.push(node);
        self
    }

    pub(crate) fn op(
        self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attrs: Vec<AttributeProto>,
    ) -> Self {
        self.node(node(op, inputs, outputs, attrs))
    }

    pub(crate) fn output(mut self, name: &str) -> Self {
        self.graph().output.push(value_info(name, DType::F32, ""));
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.0.encode_to_vec()
    }

    pub(crate) fn import(&self) -> Result<Imported, ImportError> {
        import_bytes(self.bytes(), &ImportOptions::default())
    }

    /// Imports, verifies and evaluates; `(extents, elements)` of each output.
    pub(crate) fn run(&self, inputs: &[Tensor]) -> Vec<(Vec<usize>, Vec<f64>)> {
        let imported = self.import().unwrap();
        eggine_ir::graph::verify(&imported.graph).unwrap();
        let results = eval(&imported.graph, inputs, Rounding::None);
        results.into_iter().map(|array| (array.extents.clone(), array.to_f64())).collect()
    }

    /// The only output for one `f32` input.
    pub(crate) fn on(&self, extents: &[usize], data: &[f32]) -> (Vec<usize>, Vec<f64>) {
        self.run(&[Tensor::f32(extents, data)]).remove(0)
    }
}

/// A model with one input `x`, one node and one output `y`.
pub(crate) fn single(opset: i64, op: &str, dims: &str, attrs: Vec<AttributeProto>) -> Build {
    model(opset).input("x", DType::F32, dims).op(op, &["x"], &["y"], attrs).output("y")
}

pub(crate) fn count(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32).collect()
}

#[track_caller]
pub(crate) fn assert_near(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{got:?} and {want:?}");
    for (i, (x, y)) in got.iter().zip(want).enumerate() {
        let near = (x - y).abs() <= 1e-6 * y.abs().max(1.0) || x == y || (x.is_nan() && y.is_nan());
        assert!(near, "element {i}: {x}, expected {y} ({got:?} and {want:?})");
    }
}

pub(crate) fn ops_of(imported: &Imported) -> Vec<Op> {
    let op = |node: &eggine_ir::Node| match node.kind {
        NodeKind::Apply(op, ..) => Some(op),
        _ => None,
    };
    imported.graph.nodes.values().filter_map(op).collect()
}

/// A subgraph of one operator on `x` of the scope around it.
pub(crate) fn branch(op: &str, out: &str) -> GraphProto {
    let output = vec![value_info(out, DType::F32, "")];
    GraphProto { node: vec![node(op, &["x"], &[out], vec![])], output, ..Default::default() }
}
