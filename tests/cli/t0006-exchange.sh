#!/bin/bash
# `der export`, `der import` and --init: what they print, what they write, and what they refuse.
. "$(dirname "$0")/../support/test-lib.sh"

data=synth:classes=4,train=20,test=10,size=12,seed=1
net=(--set network=resnet18-cifar --set width=0.1)
flags=(--data "$data" --threads 1 --quiet --set order=seed:1 --set step_classes=2 --set epochs=2
    --set classifier_epochs=2 --set batch=16 --set memory=8)
import=(--network resnet18-cifar --width 0.1)

expect_code 0 "a model to work with" "$DER" train "${flags[@]}" "${net[@]}" --method finetune --out run

# Export.
expect_code 0 "a model is exported" "$DER" export run/model.safetensors --onnx model.onnx
check "nothing is printed" test ! -s out
check "the file names its producer" grep -q der model.onnx
check "and the classes" grep -q '\["' model.onnx
expect_code 0 "it is exported again" "$DER" export run/model.safetensors --onnx again.onnx
check "to the same bytes" cmp model.onnx again.onnx
cp run/model.safetensors kept.safetensors
expect_code 2 "a model is not replaced by its export" "$DER" export kept.safetensors --onnx ./kept.safetensors
check "which is told" one_line err "--onnx would replace kept.safetensors"
check "and stays" cmp kept.safetensors run/model.safetensors
expect_code 0 "a graph can take bytes" "$DER" export run/model.safetensors --onnx pixels.onnx --pixels
check "and then is another" test "$(stat -c %s pixels.onnx)" -gt "$(stat -c %s model.onnx)"
expect_code 2 "without a file there is nothing to write" "$DER" export run/model.safetensors
check "and that is said" one_line err '--onnx is missing'
expect_code 2 "without a model there is nothing to export" "$DER" export --onnx x.onnx
check "and that is said" one_line err 'MODEL is missing'
expect_code 3 "what is no model is refused" "$DER" export run/exemplars.safetensors --onnx x.onnx
check "by name" one_line err run/exemplars.safetensors
expect_code 3 "a folder that is not there is told" "$DER" export run/model.safetensors --onnx none/x.onnx
check "by name" one_line err none
check "and nothing is left" test ! -e x.onnx

# Import: a model of one whole extractor has torchvision's names behind a prefix.
expect_code 0 "weights are recognised" "$DER" import run/model.safetensors "${import[@]}"
check "and what was matched is told" grep -q \
    "^run/model.safetensors: all 100 tensors of resnet18-cifar, [0-9]* parameters, behind the prefix 'extractors.0.'; 1 others" out
expect_code 0 "they are written for training" "$DER" import run/model.safetensors "${import[@]}" --out w.safetensors
check "and how to use them is told" grep -q "^w.safetensors: written; 'der train --init w.safetensors'" out
expect_code 0 "what is written is read" "$DER" import w.safetensors "${import[@]}" --out again.safetensors
check "and is the same again" cmp w.safetensors again.safetensors
expect_code 3 "another stem is refused" "$DER" import w.safetensors --width 0.1
check "in one sentence" one_line err 'begins with a convolution of 3 x 3, the network with one of 7 x 7'
expect_code 3 "another width is refused" "$DER" import w.safetensors --network resnet18-cifar
check "by the first tensor" one_line err "tensor 'conv1.weight' is F32 \[6, 3, 3, 3\], want F32 \[64, 3, 3, 3\]"
expect_code 3 "other images are refused" "$DER" import w.safetensors "${import[@]}" --channels 1
check "in one sentence" one_line err 'is for images of 3 channels, not of 1'
expect_code 3 "another prefix is refused" "$DER" import w.safetensors "${import[@]}" --prefix model.
check "by name" one_line err "there is no tensor 'model.conv1.weight'"
expect_code 2 "an unknown network is refused" "$DER" import w.safetensors --network resnet50
check "and the known ones are listed" one_line err "unknown network 'resnet50'; known: resnet18-cifar"
expect_code 3 "what is no such file is refused" "$DER" import run/config.json
check "by name" one_line err run/config.json
expect_code 2 "without a file there is nothing to import" "$DER" import
check "and that is said" one_line err 'FILE is missing'
expect_code 0 "with --quiet it says nothing" "$DER" import w.safetensors "${import[@]}" --quiet --out quiet.safetensors
check "on either output" test ! -s out -a ! -s err
check "but writes" cmp w.safetensors quiet.safetensors

# Beginning with them.
start=("${flags[@]}" "${net[@]}" --max-steps 1)
expect_code 0 "training begins with weights" "$DER" train "${start[@]}" --init w.safetensors --out begun
check "config.json names them" grep -q '"init":.*"w.safetensors"' begun/config.json
check "and their checksum" grep -Eq '"init_checksum":.*"[0-9a-f]{16}"' begun/config.json
expect_code 0 "or at random" "$DER" train "${start[@]}" --out random
check_not "which config.json shows" grep -q '"init"' random/config.json
check_not "the results differ" cmp begun/model.safetensors random/model.safetensors
expect_code 0 "the file they came from does as well" "$DER" train "${start[@]}" --init run/model.safetensors --out raw
check "to the same bytes" cmp begun/model.safetensors raw/model.safetensors
expect_code 3 "weights of another network are refused" "$DER" train "${start[@]}" --set width=0.2 --init w.safetensors \
    --out refused
check "in one sentence" one_line err "tensor 'conv1.weight' is F32"
check "before a folder is made" test ! -e refused

# Learning begins with them, too, once.
lesson=(--new "$data" --arch resnet18-cifar --width 0.1 --epochs 1 --classifier-epochs 1 --threads 1 --quiet)
expect_code 0 "a new model learns from weights" "$DER" learn begun.safetensors "${lesson[@]}" --init w.safetensors
expect_code 0 "or at random" "$DER" learn random.safetensors "${lesson[@]}"
check_not "the results differ" cmp begun.safetensors random.safetensors
expect_code 2 "a model that has learnt has weights" "$DER" learn begun.safetensors "${lesson[@]}" --init w.safetensors
check "and that is said" one_line err 'w.safetensors can only be asked for when a model is new'
expect_code 3 "weights of another network are refused" "$DER" learn new.safetensors "${lesson[@]:0:2}" --init w.safetensors
check "in one sentence" one_line err 'begins with a convolution of 3 x 3, the network with one of 7 x 7'
check "and no model is made" test ! -e new.safetensors

done_testing
