//! Launch attributes in the driver's form.

use cudarc::driver::sys::{
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchAttributeValue_union__bindgen_ty_1 as ClusterDim,
};

use crate::device::LaunchAttributes;

/// The attributes and how many there are; those behind are of no meaning.
pub(super) fn attributes_of(wanted: &LaunchAttributes) -> ([CUlaunchAttribute; 2], u32) {
    let none = CUlaunchAttribute {
        id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE,
        pad: [0; 4],
        value: CUlaunchAttributeValue { pad: [0; 64] },
    };
    let mut all = [none; 2];
    let mut n = 0;
    if wanted.cooperative {
        all[n].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
        all[n].value.cooperative = 1;
        n += 1;
    }
    if let Some([x, y, z]) = wanted.cluster {
        all[n].id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        all[n].value.clusterDim = ClusterDim { x, y, z };
        n += 1;
    }
    (all, n as u32)
}

/// For messages.
pub(super) fn describe(wanted: &LaunchAttributes) -> String {
    let cooperative = wanted.cooperative.then(|| "cooperative".to_owned());
    let cluster = wanted.cluster.map(|it| format!("clusters of {it:?}"));
    let shared = (wanted.shared_bytes > 0).then(|| format!("{} bytes shared", wanted.shared_bytes));
    [cooperative, cluster, shared].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
