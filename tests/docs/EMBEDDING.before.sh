# A model and a picture for the Python example.
# shellcheck shell=bash
"$DER" train --out run --quiet --threads 1 --data synth:classes=3,train=20,test=4,size=16,seed=1 \
    --set network=resnet18-cifar --set width=0.12 --set epochs=1 --set batch=16 &&
    cp run/model.safetensors . &&
    python3 -c 'import numpy; numpy.save("picture.npy", numpy.zeros((20, 30, 3), numpy.uint8))'
