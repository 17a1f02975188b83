"""The plugins that come with seqbert; the framework finds them by entry point, as it finds anyone's."""
