"""Still pictures: what their files hold, folders of them, files of several."""
