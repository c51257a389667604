#!/bin/sh
echo hello "$@"
