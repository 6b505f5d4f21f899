"""The architectures, by library and name, with random weights and small inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.zoo import hand_written, vision_operators
from tests.zoo.case import Case, case


def _image(size: int) -> Tensor:
    return torch.randn(2, 3, size, size)


def _torchvision(name: str, size: int = 64, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        vision_operators.declare()
        models = importlib.import_module("torchvision.models")
        return case(models.get_model(name, weights=None, **options), _image(size))

    return make


def _segmentation() -> Case:
    vision_operators.declare()
    models = importlib.import_module("torchvision.models.segmentation")
    made = models.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4)
    return case(made, _image(64))


def _maxvit() -> Case:
    vision_operators.declare()
    module = importlib.import_module("torchvision.models.maxvit")
    made = module.MaxVit(
        input_size=(32, 32),
        stem_channels=16,
        partition_size=2,
        block_channels=[16, 32],
        block_layers=[1, 1],
        head_dim=8,
        stochastic_depth_prob=0.2,
    )
    return case(made, _image(32))


def _detection_head() -> Case:
    vision_operators.declare()
    module = importlib.import_module("torchvision.models.detection.retinanet")
    made = module.RetinaNetHead(16, 3, 5)
    for parameter in made.parameters():
        if parameter.dim() > 1:  # its own first weights let the values vanish
            torch.nn.init.kaiming_normal_(parameter)
    return case(made, [torch.randn(2, 16, n, n) for n in (8, 4, 2)])


def _optical_flow() -> Case:
    vision_operators.declare()
    models = importlib.import_module("torchvision.models.optical_flow")
    made = models.raft_small(weights=None)
    return case(made, _image(128), _image(128), num_flow_updates=2)


def _timm(name: str, size: int = 64, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        vision_operators.declare()
        timm = importlib.import_module("timm")
        return case(timm.create_model(name, num_classes=10, **options), _image(size))

    return make


def _transformers(kind: str, config: str, inputs: str, **options: Any) -> Callable[[], Case]:
    def make() -> Case:
        vision_operators.declare()
        library = importlib.import_module("transformers")
        attention = options.pop("attn_implementation", None)
        made = getattr(library, config)(**options)
        if attention is not None:
            made._attn_implementation = attention
        model = getattr(library, kind)(made)
        if inputs == "image":
            return case(model, pixel_values=_image(made.image_size))
        tokens = torch.randint(0, 90, (2, 12))
        return case(model, input_ids=tokens, attention_mask=torch.ones_like(tokens))

    return make


_TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_PICTURE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}

ARCHITECTURES: dict[str, dict[str, Callable[[], Case]]] = {
    "torchvision": {
        "resnet18": _torchvision("resnet18"),
        "resnet50": _torchvision("resnet50"),
        "mobilenet_v2": _torchvision("mobilenet_v2"),
        "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
        "shufflenet_v2_x0_5": _torchvision("shufflenet_v2_x0_5"),
        "squeezenet1_1": _torchvision("squeezenet1_1"),
        "densenet121": _torchvision("densenet121"),
        "googlenet": _torchvision("googlenet", 96, init_weights=False),
        "inception_v3": _torchvision("inception_v3", 96, init_weights=False, aux_logits=False),
        "efficientnet_b0": _torchvision("efficientnet_b0"),
        "regnet_y_400mf": _torchvision("regnet_y_400mf"),
        "convnext_tiny": _torchvision("convnext_tiny"),
        "vit_b_16": _torchvision("vit_b_16", 32, image_size=32),
        "swin_t": _torchvision("swin_t"),
        "maxvit": _maxvit,
        "deeplabv3": _segmentation,
        "retinanet head": _detection_head,
        "raft_small": _optical_flow,
    },
    "timm": {
        "levit_128s": _timm("levit_128s", 224),
        "mobilevit_xxs": _timm("mobilevit_xxs"),
        "ghostnet_100": _timm("ghostnet_100"),
        "repvgg_a0": _timm("repvgg_a0"),
        "fastvit_t8": _timm("fastvit_t8"),
        "tinynet_e": _timm("tinynet_e"),
        "tf_efficientnet_lite0": _timm("tf_efficientnet_lite0"),
        "xcit_nano": _timm("xcit_nano_12_p8_224", 64, img_size=64),
        "nf_regnet_b0": _timm("nf_regnet_b0"),
        "eva02_tiny": _timm("eva02_tiny_patch14_224", 56, img_size=56),
    },
    "transformers": {
        "BERT (sdpa)": _transformers("BertModel", "BertConfig", "text", **_TEXT),
        "BERT (eager)": _transformers(
            "BertModel", "BertConfig", "text", **_TEXT, attn_implementation="eager"
        ),
        "GPT-2": _transformers(
            "GPT2LMHeadModel",
            "GPT2Config",
            "text",
            vocab_size=99,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=64,
        ),
        "LLaMA": _transformers(
            "LlamaForCausalLM", "LlamaConfig", "text", **_TEXT, num_key_value_heads=2
        ),
        "ViT": _transformers(
            "ViTModel", "ViTConfig", "image", **_PICTURE, intermediate_size=64, image_size=32,
            patch_size=8,
        ),
        "Swin": _transformers(
            "SwinModel", "SwinConfig", "image", image_size=32, patch_size=2, embed_dim=16,
            depths=[1, 2], num_heads=[2, 4], window_size=4,
        ),
        "SegFormer": _transformers(
            "SegformerForSemanticSegmentation",
            "SegformerConfig",
            "image",
            image_size=64,
            depths=[1, 1, 1, 1],
            hidden_sizes=[8, 16, 16, 32],
            num_attention_heads=[1, 2, 2, 4],
            decoder_hidden_size=16,
        ),
    },
    "hand-written": hand_written.MODELS,
}  # fmt: skip
"""A function that makes the case, by library and name."""

OTHER_BACKENDS = ("tensorrt", "openvino", "qnn", "snpe", "vitis", "academic")
FOR_OTHERS = (
    "squeezenet1_1", "mobilenet_v3_small", "resnet18", "maxvit", "tinynet_e", "BERT (sdpa)",
    "GPT-2", "ViT", "LSTM", "GRU", "SDPA", "derived layers",
)  # fmt: skip
"""The architectures that are tried for the other backends, too."""


def cases() -> list[tuple[str, str, str]]:
    """All that is tried: library, architecture and backend."""
    known = [(library, name) for library, names in ARCHITECTURES.items() for name in names]
    by_name = {name: (library, name) for library, name in known}
    others = [(*by_name[name], backend) for name in FOR_OTHERS for backend in OTHER_BACKENDS]
    return [(*case, "onnxruntime") for case in known] + others
