"""A Django project with the stock applications and a small one of our own, on AWS's adapter."""

import os

SECRET_KEY = "not secret"
USE_TZ = True
ALLOWED_HOSTS = ["testserver"]
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "clinic",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DATABASES = {
    "default": {
        "ENGINE": "aurora_dsql_django",
        "HOST": os.environ["CLUSTER_ENDPOINT"],
        "USER": "admin",
        "NAME": "postgres",
        "OPTIONS": {"sslmode": "verify-full", "sslrootcert": os.environ["PGSSLROOTCERT"]},
        # With identity columns the keys are numbers; without, they are UUIDs. The script runs both.
        "USE_SEQUENCE_AUTOFIELDS": os.environ.get("KEYS") == "identity",
    }
}
