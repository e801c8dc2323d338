"""Tests of vit_neuron_tools and of what builds, installs and publishes the project."""
