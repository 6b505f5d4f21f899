"""ncnn's own model files: layers as text (.param), weights as bytes (.bin), in and out."""
