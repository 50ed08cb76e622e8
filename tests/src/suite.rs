//! Six networks in their published shapes, batch 1, without values: graphs for measuring saturation and
//! extraction (the set of TENSAT, Yang et al., MLSys 2021, and what they took there).
//!
//! Weights have types only. A normalisation after a convolution is a scale and a shift per channel, as
//! exporters leave it; softmax, layer normalisation and GELU are in pieces.

mod build;
mod cells;

use eggine_ir::Graph;

use self::build::Net;

/// A network of the suite.
#[derive(Clone, Copy)]
pub struct Network {
    /// Its name, kebab-case.
    pub name: &'static str,
    /// Builds it.
    pub build: fn() -> Graph,
    /// Seconds of saturation and extraction that TENSAT needs, which ours must not exceed.
    pub tensat_s: f64,
}

/// All of them.
#[rustfmt::skip] // One network per row.
pub const NETWORKS: &[Network] = &[
    Network { name: "bert-base",    build: bert_base,    tensat_s: 1.4 },
    Network { name: "resnext-50",   build: resnext_50,   tensat_s: 0.7 },
    Network { name: "nasnet-a",     build: nasnet_a,     tensat_s: 10.6 },
    Network { name: "inception-v3", build: inception_v3, tensat_s: 5.1 },
    Network { name: "squeezenet",   build: squeezenet,   tensat_s: 0.3 },
    Network { name: "vgg-19",       build: vgg_19,       tensat_s: 0.4 },
];

/// BERT-base behind the embedding tables: 12 layers, 128 tokens, and the pooler (Devlin et al. 2019).
pub fn bert_base() -> Graph {
    let (seq, width, heads) = (128, 768, 12);
    let mut net = Net::new("bert-base");
    let embedded = net.input(&[1, seq, width]);
    let keep = net.input(&[1, 1, 1, seq]);
    let mask = net.mask(keep);
    let mut at = net.layer_norm(embedded);
    for _ in 0..12 {
        at = net.encoder_layer(at, mask, heads);
    }
    let pooled = net.first_token(at);
    let pooled = net.linear(pooled, width);
    let pooled = net.tanh(pooled);
    net.finish(&[at, pooled])
}

/// ResNeXt-50, 32×4d (Xie et al. 2017).
pub fn resnext_50() -> Graph {
    let mut net = Net::new("resnext-50");
    let image = net.input(&[1, 3, 224, 224]);
    let stem = net.conv_norm_relu(image, 64, [7, 7], 2, 1);
    let mut at = net.max_pool(stem, 3, 2, 1);
    for (stage, n_blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        for block in 0..n_blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            at = net.bottleneck(at, 128 << stage, 256 << stage, stride, 32);
        }
    }
    let out = net.classify(at, 1000);
    net.finish(&[out])
}

/// NASNet-A (4 @ 1056), the mobile setting: stem, two reductions, three times four cells with two
/// reductions between them (Zoph et al. 2018).
pub fn nasnet_a() -> Graph {
    let mut net = Net::new("nasnet-a");
    let image = net.input(&[1, 3, 224, 224]);
    let filters = 44;
    let stem = net.conv_norm(image, 32, [3, 3], 2, 1);
    let mut pair = (stem, stem);
    pair = (pair.1, net.reduction_cell(pair.1, pair.0, filters / 4));
    pair = (pair.1, net.reduction_cell(pair.1, pair.0, filters / 2));
    for stage in 0..3 {
        let filters = filters << stage;
        if stage > 0 {
            pair = (pair.1, net.reduction_cell(pair.1, pair.0, filters));
        }
        for _ in 0..4 {
            pair = (pair.1, net.normal_cell(pair.1, pair.0, filters));
        }
    }
    let last = net.relu(pair.1);
    let out = net.classify(last, 1000);
    net.finish(&[out])
}

/// Inception-v3 without the auxiliary classifier (Szegedy et al. 2016).
pub fn inception_v3() -> Graph {
    let mut net = Net::new("inception-v3");
    let image = net.input(&[1, 3, 299, 299]);
    let mut at = net.conv_valid(image, 32, 3, 2);
    at = net.conv_valid(at, 32, 3, 1);
    at = net.conv_norm_relu(at, 64, [3, 3], 1, 1);
    at = net.max_pool(at, 3, 2, 0);
    at = net.conv_valid(at, 80, 1, 1);
    at = net.conv_valid(at, 192, 3, 1);
    at = net.max_pool(at, 3, 2, 0);
    for pool in [32, 64, 64] {
        at = net.inception_a(at, pool);
    }
    at = net.inception_b(at);
    for middle in [128, 160, 160, 192] {
        at = net.inception_c(at, middle);
    }
    at = net.inception_d(at);
    for _ in 0..2 {
        at = net.inception_e(at);
    }
    let out = net.classify(at, 1000);
    net.finish(&[out])
}

/// SqueezeNet 1.1 (Iandola et al. 2016).
pub fn squeezenet() -> Graph {
    let mut net = Net::new("squeezenet");
    let image = net.input(&[1, 3, 224, 224]);
    let stem = net.conv_bias_relu(image, 64, 3, 2, 0);
    let mut at = net.max_pool(stem, 3, 2, 0);
    for (squeeze, expand, pool) in [
        (16, 64, false),
        (16, 64, true),
        (32, 128, false),
        (32, 128, true),
        (48, 192, false),
        (48, 192, false),
        (64, 256, false),
        (64, 256, false),
    ] {
        let squeezed = net.conv_bias_relu(at, squeeze, 1, 1, 0);
        let left = net.conv_bias_relu(squeezed, expand, 1, 1, 0);
        let right = net.conv_bias_relu(squeezed, expand, 3, 1, 1);
        at = net.concat(&[left, right]);
        if pool {
            at = net.max_pool(at, 3, 2, 0);
        }
    }
    let last = net.conv_bias_relu(at, 1000, 1, 1, 0);
    let pooled = net.global_average(last);
    let out = net.softmax(pooled);
    net.finish(&[out])
}

/// VGG-19 (Simonyan and Zisserman 2015).
pub fn vgg_19() -> Graph {
    let mut net = Net::new("vgg-19");
    let mut at = net.input(&[1, 3, 224, 224]);
    for (width, n_convs) in [(64, 2), (128, 2), (256, 4), (512, 4), (512, 4)] {
        for _ in 0..n_convs {
            at = net.conv_bias_relu(at, width, 3, 1, 1);
        }
        at = net.max_pool(at, 2, 2, 0);
    }
    at = net.flatten(at);
    for width in [4096, 4096] {
        at = net.linear(at, width);
        at = net.relu(at);
    }
    at = net.linear(at, 1000);
    let out = net.softmax(at);
    net.finish(&[out])
}
