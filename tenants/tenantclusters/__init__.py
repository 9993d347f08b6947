"""Tenant clusters: what they are made of, how they are made (behind the Provisioner protocol), and what is seen."""
