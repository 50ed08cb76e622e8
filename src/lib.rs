//! Eggine: a compiler that turns ONNX models into tuned inference engines. This is the library facade.
