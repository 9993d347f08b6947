"""The machinery behind the API: scheduler, kubelets, controllers. All of it looks at the objects and acts on them."""
